#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/import/source.h"
#include "launcher/spec/training_job.h"

namespace lockstep::importer {

// A pod template as a role of a TrainingJob has it: program, devices, and the rest as a template. What the
// operator keeps for itself (launcher/operator/pod_template.h) is told and left out.
struct Pod {
  std::vector<std::string> entrypoint;  // the container's `command`; empty: the image's own
  std::vector<std::string> arguments;   // its `args`
  std::vector<std::pair<std::string, std::string>> environment;  // with fixed values
  Json pod_environment = Json::array();  // with others, as Kubernetes writes them; for the template
  std::string working_directory;

  std::string image;
  Json container = Json::object();  // what the template's container has, but for its name and variables
  Json metadata = Json::object();
  Json spec = Json::object();  // the rest of the pod
  Json other_containers = Json::array();
  std::optional<int64_t> gpus;  // that the container asks for
  bool tpus = false;            // whether it does
  std::optional<std::chrono::seconds> grace_period;

  std::optional<Field> container_field;  // where notes on the command belong
  std::optional<Field> name_field;
  std::optional<Field> command_field;
  std::optional<Field> args_field;
  std::optional<Field> image_field;
  std::optional<Field> resources_field;

  bool operator==(const Pod& other) const;
};

// `main`: the name of the container that trains; empty, or where there is none of that name: the first.
Pod ReadPod(const Field& pod_template, std::string_view main);
// What a container's fields of these names hold; it takes the place of what the pod has, variable by
// variable.
void ReadImage(const Field& image, Pod& pod);
void ReadCommand(const Field& command, Pod& pod);
void ReadArguments(const Field& args, Pod& pod);
void ReadEnvironment(const Field& env, Pod& pod);
void ReadResources(const Field& resources, Pod& pod);

// The command, with $(NAME) filled in from the pod's variables as Kubernetes does. Where the image's own
// entrypoint would run, a word that stands for it, and a note.
std::vector<std::string> CommandOf(const Pod& pod);
spec::Devices DevicesOf(const Pod& pod);
// A PodTemplateSpec; null: there is nothing to say.
Json TemplateOf(const Pod& pod);
// What becomes of the container's name and image, for pods that come out.
void TellOfContainer(const Pod& pod);

}  // namespace lockstep::importer
