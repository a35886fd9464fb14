#include "trainer/run.h"

#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/contract/environment.h"
#include "common/log.h"
#include "trainer/config.h"
#include "trainer/control_pipe.h"
#include "trainer/devices.h"
#include "trainer/error.h"
#include "trainer/generation.h"
#include "trainer/process_environment.h"
#include "trainer/served_run.h"
#include "trainer/shared_dataset.h"
#include "trainer/stop_signal.h"

namespace lockstep::trainer {

namespace {

// How long a process that holds a state waits for the next generation.
constexpr std::chrono::seconds kParked{300};

// Until a training runs there is nothing to save: asked to stop then, the process just ends.
void End() { ::_exit(contract::kExitCheckpointed); }

// A process that takes part in one generation after the other, and what it has in all of them.
class Member {
 public:
  struct Parts {
    const Config& config;
    EventWriter& events;
    StopSignal& stop;
  };

  Member(const Parts& parts, const ProcessEnvironment& environment)
      : parts_(parts),
        environment_(environment),
        devices_({.threads = environment.threads,
                  .memory = environment.memory,
                  .soft_placement = parts.config.soft_placement}) {}

  TrainingEnd Run() {
    Variables variables = InheritedVariables();
    while (true) {
      if (const std::optional<TrainingEnd> end = RunGeneration()) return *end;
      const auto next = control_.AwaitGeneration(kParked);
      if (!next) {
        throw CollectiveLost("holding step " + std::to_string(held_.front().position.step) + ": " +
                             (control_.open() ? "no next generation came in 300 s" : "the launcher is gone"));
      }
      variables = RenewedVariables(variables, *next);
      environment_ = ReadProcessEnvironment(variables);
      log::Initialize(log::Level::kInfo, "trainer " + std::to_string(environment_.world.rank));
      parts_.events.Write(contract::PhaseEvent{.phase = "Initializing"});
    }
  }

 private:
  // None: the generation is over before the training is, the launcher knows, and held_ is what counts of it.
  std::optional<TrainingEnd> RunGeneration() {
    std::unique_ptr<Generation> generation;
    bool answered = false, stopping = false;  // of other threads until Leave
    const auto answer = [&] {
      answered = true;
      parts_.events.Write(contract::RegroupEvent{.step = held_.front().position.step});
    };
    try {
      // While it joins the others it holds what it held before, whatever comes of that; and what it waits for
      // ends with the generation's store.
      if (!held_.empty()) control_.Handle(answer);
      generation = std::make_unique<Generation>(Generation::Parts{.config = parts_.config,
                                                                  .environment = environment_,
                                                                  .devices = devices_,
                                                                  .dataset = dataset_,
                                                                  .events = parts_.events,
                                                                  .held = held_,
                                                                  .told = control_.open()});
      control_.Handle([&] { generation->Abort(); });
      if (answered) throw CollectiveLost("told to regroup while joining the others");
      held_.clear();
      parts_.stop.Handle([&] {
        stopping = true;
        generation->RequestStop();
      });
      const TrainingEnd end = generation->Run();
      Leave();
      return end;
    } catch (const Error& error) {
      Leave();
      const bool others = error.exit_code() == contract::kExitCollectiveLost ||
                          error.exit_code() == contract::kExitRendezvous;
      const bool has_state = !held_.empty() || (generation != nullptr && generation->can_keep());
      if (!others || !has_state || stopping || !control_.open()) throw;
      log::Warning(error.what());
    } catch (...) {
      Leave();
      throw;
    }
    if (held_.empty()) held_ = generation->Keep();
    if (!answered) answer();
    log::Info("holding step " + std::to_string(held_.front().position.step) + " until the next generation");
    return std::nullopt;
  }

  // Nothing that happens is told to the generation any more.
  void Leave() {
    parts_.stop.Handle(End);
    control_.Handle(nullptr);
  }

  Parts parts_;
  ProcessEnvironment environment_;
  Devices devices_;
  std::unique_ptr<const SharedDataset> dataset_;
  std::vector<Held> held_;  // what was not handed on yet, by step
  ControlPipe control_;
};

}  // namespace

int Run(EventWriter& events) {
  const ProcessEnvironment environment = ReadProcessEnvironment();
  StopSignal stop(End);

  events.Write(contract::PhaseEvent{.phase = "Initializing"});
  if (environment.config_file.empty()) {
    throw Error(contract::kExitUsage, "BadEnvironment",
                std::string(contract::kTrainerConfig) +
                    " is not set; lockstep-trainer is started by \"lockstep run\"");
  }
  const Config config = ReadConfig(environment.config_file);
  if (config.served) {
    return RunServed({.config = config, .environment = environment, .events = events, .stop = stop});
  }
  Member member({.config = config, .events = events, .stop = stop}, environment);
  return member.Run() == TrainingEnd::kStopped ? contract::kExitCheckpointed : contract::kExitDone;
}

}  // namespace lockstep::trainer
