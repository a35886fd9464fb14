#include "launcher/operator/pod_template.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "launcher/operator/json_fields.h"
#include "launcher/operator/names.h"

namespace lockstep::op {

using Json = nlohmann::json;

namespace {

constexpr char kLogFormat[] = "LOCKSTEP_LOG_FORMAT";  // the agent's --log-format

// patchMergeKey of the lists of a PodTemplateSpec (k8s.io/api/core/v1/types.go). A list that is not here is
// atomic.
std::string_view MergeKey(std::string_view list) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 15> kKeys = {{
      {"containers", "name"},
      {"initContainers", "name"},
      {"ephemeralContainers", "name"},
      {"volumes", "name"},
      {"env", "name"},
      {"ports", "containerPort"},
      {"volumeMounts", "mountPath"},
      {"volumeDevices", "devicePath"},
      {"imagePullSecrets", "name"},
      {"hostAliases", "ip"},
      {"topologySpreadConstraints", "topologyKey"},
      {"resourceClaims", "name"},
      {"schedulingGates", "name"},
      {"ownerReferences", "uid"},
      {"conditions", "type"},
  }};
  for (const auto& [name, key] : kKeys) {
    if (name == list) return key;
  }
  return {};
}

void Merge(Json& base, const Json& overlay, const std::string& path, Conflicts& conflicts);

void MergeList(Json& base, const Json& overlay, std::string_view key, const std::string& path,
               Conflicts& conflicts) {
  for (size_t i = 0; i < overlay.size(); ++i) {
    const Json& item = overlay[i];
    const std::string where = path + "[" + std::to_string(i) + "]";
    const Json& name = Child(item, key);
    if (name.is_null()) {
      conflicts.push_back(where + ": has no " + std::string(key));
      continue;
    }
    const auto same =
        std::find_if(base.begin(), base.end(), [&](const Json& each) { return Child(each, key) == name; });
    if (same == base.end()) {
      Json fresh = Json::object();
      Merge(fresh, item, where, conflicts);
      base.push_back(std::move(fresh));
    } else {
      Merge(*same, item, where, conflicts);
    }
  }
}

void Merge(Json& base, const Json& overlay, const std::string& path, Conflicts& conflicts) {
  if (!overlay.is_object()) {
    conflicts.push_back((path.empty() ? "template" : path) + ": is not a mapping");
    return;
  }
  for (const auto& [key, value] : overlay.items()) {
    const std::string where = path.empty() ? key : path + "." + key;
    if (key.starts_with("$")) {
      conflicts.push_back(where + ": directives of a patch are not read");
      continue;
    }
    if (value.is_null()) {
      base.erase(key);
      continue;
    }
    Json& old = base[key];
    const std::string_view merge_key = value.is_array() ? MergeKey(key) : std::string_view();
    // A selector or a security context of another kind (a volume's source, say) is a mapping as well: what
    // the API allows only one of, it refuses itself.
    if (value.is_object()) {
      if (!old.is_object()) old = Json::object();
      Merge(old, value, where, conflicts);
    } else if (!merge_key.empty()) {
      if (!old.is_array()) old = Json::array();
      MergeList(old, value, merge_key, where, conflicts);
    } else {
      old = value;
    }
  }
}

void CheckContainer(const Json& container, const std::string& path, Conflicts& conflicts) {
  for (const char* field : {"command", "args", "terminationMessagePath", "terminationMessagePolicy"}) {
    if (container.contains(field)) {
      conflicts.push_back(path + "." + field + ": the container " + kContainer +
                          " runs the agent; what it starts is said by spec.trainer or spec.program");
    }
  }
  for (const Json& variable : Items(container, "env")) {
    const std::string name = Text(variable, "name");
    if (name == kLogFormat) continue;
    if (name.starts_with("LOCKSTEP_") || name == "JOB_COMPLETION_INDEX") {
      conflicts.push_back(path + ".env: " + name + " is the operator's");
    }
  }
  for (const Json& mount : Items(container, "volumeMounts")) {
    const std::string where = Text(mount, "mountPath");
    for (const char* ours : {kManifestFolder, kTokenFolder, kRunFolder, kLauncherFolder}) {
      if (where == ours) conflicts.push_back(path + ".volumeMounts: " + where + " is the operator's");
    }
  }
}

}  // namespace

void MergeTemplate(Json& pod, const Json& overlay, Conflicts& conflicts) {
  if (overlay.is_null()) return;
  Merge(pod, overlay, "", conflicts);
}

Conflicts CheckTemplate(const Json& overlay) {
  Conflicts conflicts;
  const Json& spec = Child(overlay, "spec");
  for (const char* field : {"restartPolicy", "subdomain", "hostname", "setHostnameAsFQDN",
                            "terminationGracePeriodSeconds", "activeDeadlineSeconds"}) {
    if (spec.is_object() && spec.contains(field)) {
      conflicts.push_back(std::string("spec.") + field + ": is set by the operator");
    }
  }
  const Json& metadata = Child(overlay, "metadata");
  for (const char* map : {"labels", "annotations"}) {
    const Json& words = Child(metadata, map);
    if (!words.is_object()) continue;
    for (const auto& [key, value] : words.items()) {
      if (key.starts_with("lockstep.dev/") || key == kManagedByLabel) {
        conflicts.push_back(std::string("metadata.") + map + "." + key + ": is the operator's");
      }
    }
  }
  for (const Json& volume : Items(spec, "volumes")) {
    const std::string name = Text(volume, "name");
    if (name.starts_with("lockstep-")) conflicts.push_back("spec.volumes: " + name + " is the operator's");
  }
  for (const Json& container : Items(spec, "initContainers")) {
    if (Text(container, "name") == kInjectContainer) {
      conflicts.push_back(std::string("spec.initContainers: ") + kInjectContainer + " is the operator's");
    }
  }
  const Json& containers = Items(spec, "containers");
  for (size_t i = 0; i < containers.size(); ++i) {
    if (Text(containers[i], "name") == kContainer) {
      CheckContainer(containers[i], "spec.containers[" + std::to_string(i) + "]", conflicts);
    }
  }
  return conflicts;
}

}  // namespace lockstep::op
