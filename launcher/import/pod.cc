#include "launcher/import/pod.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <tuple>

#include "common/contract/environment.h"
#include "launcher/spec/quote.h"

namespace lockstep::importer {

namespace {

constexpr char kContainer[] = "lockstep";  // the one that the agent runs in
constexpr char kEntrypoint[] = "IMAGE-ENTRYPOINT";
constexpr char kReplaced[] = "another takes its place";
constexpr char kAcceleratorLabel[] = "cloud.google.com/gke-tpu-accelerator";
constexpr char kTopologyLabel[] = "cloud.google.com/gke-tpu-topology";

template <size_t N>
bool OneOf(std::string_view text, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

bool IsVariable(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_';
  }) && std::isdigit(static_cast<unsigned char>(name[0])) == 0;
}

// $(NAME) filled in as the kubelet does; `open` gets the names that have no fixed value here.
std::string Expanded(const std::string& text, const Pod& pod, std::vector<std::string>* open) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "$$") == 0) {
      out += '$';
      ++i;
      continue;
    }
    const size_t end = text.compare(i, 2, "$(") == 0 ? text.find(')', i) : std::string::npos;
    if (end == std::string::npos) {
      out += text[i];
      continue;
    }
    const std::string name = text.substr(i + 2, end - i - 2);
    const auto known = std::find_if(pod.environment.rbegin(), pod.environment.rend(),
                                    [&](const auto& variable) { return variable.first == name; });
    const bool elsewhere = contract::IsReserved(name) ||
                           std::any_of(pod.pod_environment.begin(), pod.pod_environment.end(),
                                       [&](const Json& variable) { return variable["name"] == name; });
    if (known != pod.environment.rend()) {
      out += known->second;
      i = end;
    } else {
      if (elsewhere) open->push_back(name);
      out += text[i];  // no variable: it stays as it is
    }
  }
  return out;
}

std::string TextOf(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

void ReadVariable(const Field& variable, Pod& pod) {
  const std::string name = variable["name"].Text().value_or("");
  if (name.empty()) return variable.LeaveOut("has no name; left out");
  if (name == "CUDA_VISIBLE_DEVICES" || name.starts_with(contract::kOwnPrefix)) {
    return variable.LeaveOut(name + " is Lockstep's to set; left out (spec.devices chooses devices)");
  }
  if (contract::IsReserved(name) || name == "JOB_COMPLETION_INDEX") {
    return variable.Explain(name + ": Lockstep sets it itself");
  }
  auto& others = pod.pod_environment.get_ref<Json::array_t&>();
  if (std::erase_if(pod.environment, [&](const auto& other) { return other.first == name; }) +
          std::erase_if(others, [&](const Json& other) { return TextOf(other, "name") == name; }) >
      0) {
    variable.Say(name + " is there before, too: this value is taken");
  }
  if (variable["valueFrom"].present() || !IsVariable(name)) {
    pod.pod_environment.push_back(variable.Value());
    return;
  }
  std::vector<std::string> open;
  std::string value = Expanded(variable["value"].Text().value_or(""), pod, &open);
  if (open.empty()) {
    pod.environment.emplace_back(name, std::move(value));
  } else {
    for (const std::string& other : open) {
      if (contract::IsReserved(other))
        variable.Say("$(" + other + ") is not filled in: Lockstep sets it for each process, later", true);
    }
    pod.pod_environment.push_back({{"name", name}, {"value", value}});
  }
}

void ReadPorts(const Field& ports, Pod& pod) {
  for (const Field& port : ports.Items()) {
    const std::string_view name = port["name"].Peek();
    if (name == "http" || name == "rendezvous") {
      port.LeaveOut("left out: Lockstep has ports of this name itself; give it another name");
    } else {
      pod.container["ports"].push_back(port.Value());
    }
  }
}

void ReadContainer(const Field& container, Pod& pod) {
  static constexpr std::array<std::string_view, 3> kProbes = {"livenessProbe", "readinessProbe",
                                                              "startupProbe"};
  static constexpr std::array<std::string_view, 2> kMessages = {"terminationMessagePath",
                                                                "terminationMessagePolicy"};
  pod.container_field = container;
  for (const auto& [key, field] : container.Entries()) {
    if (!field.present()) continue;
    if (key == "name") {
      if (field.Text() != kContainer) pod.name_field = field;
    } else if (key == "command") {
      ReadCommand(field, pod);
    } else if (key == "args") {
      ReadArguments(field, pod);
    } else if (key == "env") {
      ReadEnvironment(field, pod);
    } else if (key == "workingDir") {
      pod.working_directory = field.Text().value_or("");
    } else if (key == "resources") {
      ReadResources(field, pod);
    } else if (key == "ports") {
      ReadPorts(field, pod);
    } else if (key == "image") {
      ReadImage(field, pod);
    } else if (OneOf(key, kProbes)) {
      field.LeaveOut("left out: Lockstep's agent has probes of its own");
    } else if (OneOf(key, kMessages)) {
      field.LeaveOut("left out: Lockstep's agent writes the message");
    } else {
      pod.container[key] = field.Value();
    }
  }
}

void ReadContainers(const Field& containers, std::string_view main, Pod& pod) {
  const std::vector<Field> all = containers.Items();
  auto chosen = std::find_if(all.begin(), all.end(), [&](const Field& container) {
    return main.empty() || container["name"].Peek() == main;
  });
  if (chosen == all.end()) {
    chosen = all.begin();
    if (!all.empty())
      containers.Say("none is called " + std::string(main) + "; the first is taken for the one that trains");
  }
  for (auto container = all.begin(); container != all.end(); ++container) {
    if (container == chosen) {
      ReadContainer(*container, pod);
      continue;
    }
    Json other = container->Value();
    if (TextOf(other, "name") == kContainer) {
      (*container)["name"].Say(
          "called lockstep-other here: lockstep is the container that the agent runs in");
      other["name"] = "lockstep-other";
    }
    pod.other_containers.push_back(std::move(other));
  }
}

void ReadMetadata(const Field& metadata, Pod& pod) {
  for (const char* map : {"labels", "annotations"}) {
    for (const auto& [key, field] : metadata[map].Entries()) {
      if (key.starts_with("lockstep.dev/") || key == "app.kubernetes.io/managed-by") {
        field.LeaveOut("is the operator's; left out");
      } else if (field.present()) {
        pod.metadata[map][key] = field.Text().value_or("");
      }
    }
  }
}

void ReadPodSpec(const Field& spec, std::string_view main, Pod& pod) {
  for (const auto& [key, field] : spec.Entries()) {
    if (!field.present()) continue;
    if (key == "containers") {
      ReadContainers(field, main, pod);
    } else if (key == "restartPolicy") {
      field.Explain(
          "not needed: pods are not restarted, their processes are, up to runPolicy.maxRestarts times");
    } else if (key == "terminationGracePeriodSeconds") {
      if (const std::optional<int64_t> seconds = field.Integer())
        pod.grace_period = std::chrono::seconds(*seconds);
    } else if (key == "activeDeadlineSeconds") {
      field.LeaveOut("left out: a pod has no deadline; runPolicy.activeDeadlineSeconds is the whole job's");
    } else if (key == "hostname" || key == "subdomain" || key == "setHostnameAsFQDN") {
      field.LeaveOut("left out: the operator names the pods");
    } else {
      pod.spec[key] = field.Value();
    }
  }
}

int64_t AmountOf(const Json& amount) {
  if (amount.is_number_integer()) return amount.get<int64_t>();
  int64_t number = 0;
  if (amount.is_string()) {
    const std::string text = amount.get<std::string>();
    std::from_chars(text.data(), text.data() + text.size(), number);
  }
  return number;
}

auto Tie(const Pod& pod) {
  return std::tie(pod.entrypoint, pod.arguments, pod.environment, pod.pod_environment, pod.working_directory,
                  pod.container, pod.metadata, pod.spec, pod.other_containers, pod.image, pod.grace_period);
}

}  // namespace

bool Pod::operator==(const Pod& other) const { return Tie(*this) == Tie(other); }

Pod ReadPod(const Field& pod_template, std::string_view main) {
  Pod pod;
  ReadMetadata(pod_template["metadata"], pod);
  ReadPodSpec(pod_template["spec"], main, pod);
  return pod;
}

void ReadImage(const Field& image, Pod& pod) {
  const std::optional<std::string> name = image.Text();
  if (!name) return;
  if (pod.image_field) pod.image_field->Say(kReplaced);
  pod.image = *name;
  pod.image_field = image;
}

void ReadCommand(const Field& command, Pod& pod) {
  if (!command.present()) return;
  if (pod.command_field) pod.command_field->Say(kReplaced);
  pod.entrypoint = command.Texts();
  pod.command_field = command;
}

void ReadArguments(const Field& args, Pod& pod) {
  if (!args.present()) return;
  if (pod.args_field) pod.args_field->Say(kReplaced);
  pod.arguments = args.Texts();
  pod.args_field = args;
}

void ReadEnvironment(const Field& env, Pod& pod) {
  for (const Field& variable : env.Items()) ReadVariable(variable, pod);
}

void ReadResources(const Field& resources, Pod& pod) {
  if (!resources.present()) return;
  if (pod.resources_field) pod.resources_field->Say(kReplaced);
  pod.resources_field = resources;
  const Json value = resources.Value();
  if (!value.is_object()) return;
  pod.container["resources"] = value;
  pod.gpus.reset();
  pod.tpus = false;
  for (const char* section : {"requests", "limits"}) {
    const auto amounts = value.find(section);
    if (amounts == value.end() || !amounts->is_object()) continue;
    int64_t gpus = 0;
    for (const auto& [name, amount] : amounts->items()) {
      if (name.starts_with("nvidia.com/")) gpus += AmountOf(amount);
      pod.tpus = pod.tpus || name == "google.com/tpu";
    }
    if (gpus > 0) pod.gpus = gpus;
  }
}

std::vector<std::string> CommandOf(const Pod& pod) {
  std::vector<std::string> words = pod.entrypoint;
  if (words.empty()) {
    words.emplace_back(kEntrypoint);
    if (pod.container_field) {
      pod.container_field->Say(
          "has no command, so the image's own entrypoint runs there; Lockstep starts the program itself: "
          "write what "
          "the image's ENTRYPOINT" +
              std::string(pod.arguments.empty() ? " and CMD are" : " is") + " in the place of " + kEntrypoint,
          true);
    }
  }
  words.insert(words.end(), pod.arguments.begin(), pod.arguments.end());
  std::vector<std::string> open;
  for (std::string& word : words) word = Expanded(word, pod, &open);
  std::sort(open.begin(), open.end());
  open.erase(std::unique(open.begin(), open.end()), open.end());
  for (const std::string& name : open) {
    if (!pod.container_field) continue;
    pod.container_field->Say("$(" + name +
                                 ") in the command is filled in by Kubernetes, and not by Lockstep: let a "
                                 "shell do it (command: [sh, -c, …]) and write $" +
                                 name,
                             true);
  }
  return words;
}

spec::Devices DevicesOf(const Pod& pod) {
  spec::Devices devices;
  if (pod.gpus) {
    devices.type = spec::DeviceType::kGpu;
  } else if (pod.tpus) {
    const Json nodes = pod.spec.contains("nodeSelector") ? pod.spec["nodeSelector"] : Json();
    devices.accelerator = TextOf(nodes, kAcceleratorLabel);
    devices.topology = TextOf(nodes, kTopologyLabel);
    if (!devices.accelerator.empty() && !devices.topology.empty()) {
      devices.type = spec::DeviceType::kTpu;
    } else if (pod.resources_field) {
      pod.resources_field->Say("asks for TPUs, but the pod's nodeSelector has not both " +
                                   std::string(kAcceleratorLabel) + " and " + kTopologyLabel +
                                   ": write devices: {type: TPU, accelerator: …, topology: …}",
                               true);
    }
  }
  return devices;
}

Json TemplateOf(const Pod& pod) {
  Json result = Json::object();
  if (!pod.metadata.empty()) result["metadata"] = pod.metadata;
  Json spec = pod.spec;
  Json container = {{"name", kContainer}};
  if (!pod.image.empty()) container["image"] = pod.image;
  container.update(pod.container);
  if (!pod.pod_environment.empty()) container["env"] = pod.pod_environment;
  Json containers = Json::array();
  if (container.size() > 1) containers.push_back(std::move(container));
  for (const Json& other : pod.other_containers) containers.push_back(other);
  if (!containers.empty()) spec["containers"] = std::move(containers);
  if (!spec.empty()) result["spec"] = std::move(spec);
  return result.empty() ? Json() : result;
}

void TellOfContainer(const Pod& pod) {
  if (pod.name_field) pod.name_field->Say("called lockstep here, the container that the agent runs in");
  if (!pod.image_field) return;
  pod.image_field->Say(
      "kept; the launcher has to be in the image (docs/cluster.md, Images), and it runs as user 65532 on a "
      "read-only "
      "root unless securityContext says otherwise");
}

}  // namespace lockstep::importer
