#include "launcher/operator/inject.h"

#include <nlohmann/json.hpp>
#include <string>

#include "launcher/operator/names.h"

namespace lockstep::op {

using Json = nlohmann::json;

namespace {

constexpr char kVolume[] = "lockstep-launcher";
constexpr char kTarget[] = "/mnt/lockstep";  // in the init container, whose own launcher is where it goes

Json InitContainer(const ChildOptions& options, const Json& agent) {
  // As little as it takes, and limits like the requests: a pod whose others are so as well stays Guaranteed,
  // and a quota on limits lets it in.
  const Json amounts = {{"cpu", "100m"}, {"memory", "64Mi"}};
  Json container = {{"name", kInjectContainer},
                    {"image", options.image},
                    {"command", {"lockstep", "inject", kTarget}},
                    {"resources", {{"requests", amounts}, {"limits", amounts}}},
                    {"securityContext", agent["securityContext"]},
                    {"terminationMessagePolicy", "FallbackToLogsOnError"},
                    {"volumeMounts", Json::array({{{"name", kVolume}, {"mountPath", kTarget}}})}};
  if (!options.pull_policy.empty()) container["imagePullPolicy"] = options.pull_policy;
  return container;
}

}  // namespace

void InjectLauncher(const spec::TrainingJob& manifest, const ChildOptions& options, Json& pod) {
  if (!manifest.inject_launcher) return;
  Json& agent = pod["spec"]["containers"][0];
  pod["spec"]["initContainers"] = Json::array({InitContainer(options, agent)});
  pod["spec"]["volumes"].push_back({{"name", kVolume}, {"emptyDir", Json::object()}});
  agent["volumeMounts"].push_back({{"name", kVolume}, {"mountPath", kLauncherFolder}, {"readOnly", true}});
  agent["command"][0] = std::string(kLauncherFolder) + "/bin/lockstep";
  // The image does not know the user of these pods, and frameworks want a name and a home for their caches.
  agent["env"].push_back({{"name", "HOME"}, {"value", "/tmp"}});
  agent["env"].push_back({{"name", "USER"}, {"value", "lockstep"}});
}

}  // namespace lockstep::op
