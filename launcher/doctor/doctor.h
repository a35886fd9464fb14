#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

// Doctor: whether a machine is fit for training jobs, and what to do where it is not. Reads the machine and
// starts lockstep-trainer on each GPU; changes nothing.
namespace lockstep::doctor {

enum class Level {
  kFine,
  kWarning,  // jobs run, but worse than they could, or only some of them
  kFault,    // jobs that need it fail
};

struct Finding {
  Level level = Level::kFine;
  std::string about;  // "GPU 0", "/dev/shm"
  std::string what;
  std::string fix = {};  // empty where there is nothing to be done
};

struct Options {
  std::filesystem::path root = "/";                // where proc/, sys/ and dev/shm are
  std::map<std::string, std::string> environment;  // the launcher's own
  std::string trainer;                             // lockstep-trainer; empty: not looked for
  std::vector<std::string> peers;                  // HOST:PORT, of other machines
};

// All that there is to say, in this order: processors, memory, limits, clock, network, peers, GPUs. Blocks: 3
// s at most a peer, 60 s a GPU.
std::vector<Finding> Examine(const Options& options);

// A line a finding, and below it what to do.
std::string FindingsText(const std::vector<Finding>& findings);
// [{"level": "Fine" | "Warning" | "Fault", "about", "what", "fix"}]
std::string FindingsJson(const std::vector<Finding>& findings);

// The parts of Examine.
std::vector<Finding> ExamineMachine(const std::filesystem::path& root);
std::vector<Finding> ExamineNetwork(const Options& options);
std::vector<Finding> ExamineGpus(const Options& options);
// Of NVIDIA's driver of that version, for the image that `environment` is of.
Finding ExamineDriver(const std::string& version, const std::map<std::string, std::string>& environment);

// What a framework ends by later, and does not say: /dev/shm, locked memory, and the driver where there is
// one of `driver_version`. Of Options only root and environment are used. Quick.
std::vector<Finding> ExamineForFrameworks(const Options& options, const std::string& driver_version);

}  // namespace lockstep::doctor
