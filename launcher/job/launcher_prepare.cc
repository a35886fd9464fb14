#include <chrono>
#include <utility>

#include "common/contract/exit_codes.h"
#include "launcher/job/launcher.h"

// The part of a Launcher that comes before its first generation: spec.program.prepare, on each machine once.
// The others wait at the rendezvous meanwhile, for as long as it takes.
namespace lockstep::job {

namespace {

constexpr auto kLockInterval = std::chrono::milliseconds(200);

std::string InWords(const std::vector<std::string>& command) {
  std::string text;
  for (const std::string& word : command) text += (text.empty() ? "" : " ") + word;
  return text;
}

}  // namespace

void Launcher::PrepareNext() {
  prepare_lock_.reset();
  if (preparations_.empty()) {
    membership_->ReportReady(static_cast<int>(assignment_.processes.size()));
    return;
  }
  const auto folder = LockFolder();
  Status status = folder.status();
  if (status.ok()) {
    auto lock = PrepareLock::Open(*folder, preparations_.front());
    status = lock.status();
    if (lock.ok()) prepare_lock_ = std::move(*lock);
  }
  if (!status.ok()) {
    SayAlways(status.message() + "; another job may prepare this machine at the same time");
    return RunPreparation();
  }
  AwaitPrepareLock(/*said=*/false);
}

void Launcher::AwaitPrepareLock(bool said) {
  if (ending_) return;
  const Result<bool> held = prepare_lock_->Try();
  if (held.ok() && !*held) {
    if (!said) {
      SayAlways("another job runs \"" + InWords(preparations_.front().command) +
                "\" on this machine and has locked " + prepare_lock_->path() + "; waiting for it");
    }
    loop_->After(kLockInterval, [this] { AwaitPrepareLock(/*said=*/true); });
    return;
  }
  const Result<bool> done = held.ok() ? prepare_lock_->DoneMeanwhile() : held;
  if (!done.ok()) SayAlways(done.status().message());
  if (!done.ok() || !*done) return RunPreparation();
  Say("the other job has done it");
  preparations_.erase(preparations_.begin());
  PrepareNext();
}

void Launcher::RunPreparation() {
  if (ending_) return;
  const placement::Preparation& preparation = preparations_.front();
  Say("prepares: " + InWords(preparation.command));
  const process::Launch launch{.name = "prepare",
                               .command = preparation.command,
                               .environment = preparation.environment,
                               .working_directory = preparation.working_directory};
  if (const Status opened = output_->Begin(0, {launch}); !opened.ok()) {
    SayAlways("output is not kept: " + opened.message());
  }
  preparing_ = true;
  if (const Status started = supervisor_->Start({launch}); !started.ok()) {
    preparing_ = false;
    Finish(contract::kExitRetryable, started.message());
  }
}

void Launcher::OnPrepared(const process::ExitReport& report) {
  preparing_ = false;
  if (ending_) return End();
  // On its way from the membership.
  if (stop_requests_ > 0) return;
  const process::Decision decision = process::Decide({report}, rules_, prepare_history_, {});
  prepare_history_ = decision.history;
  if (decision.action == process::Decision::Action::kIgnore) {
    if (prepare_lock_) {
      const Status marked = prepare_lock_->MarkDone();
      if (!marked.ok()) SayAlways(marked.message());
    }
    preparations_.erase(preparations_.begin());
    return PrepareNext();
  }
  SayFailures({report});
  if (decision.action == process::Decision::Action::kRestart) {
    SayAlways("it is run again (" + std::to_string(prepare_history_.restarts) + " of " +
              std::to_string(rules_.max_restarts) + ")");
    loop_->After(decision.delay, [this] { RunPreparation(); });
    return;
  }
  options_.replica == 0 ? membership_->DecideFinish(decision.exit_code, decision.why)
                        : membership_->RequestStop(decision.why, decision.exit_code);
}

}  // namespace lockstep::job
