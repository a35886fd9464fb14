#include <algorithm>
#include <utility>

#include "common/contract/environment.h"
#include "common/contract/exit_codes.h"
#include "launcher/job/launcher.h"
#include "launcher/job/translate.h"

// The part of a Launcher that has to do with several replicas and roles: who takes part, who starts again
// alone, and when the job is done.
namespace lockstep::job {

namespace {

void SetVariable(process::Launch& launch, std::string_view name, const std::string& value) {
  for (auto& [key, old] : launch.environment) {
    if (key == name) old = value;
  }
}

}  // namespace

std::vector<placement::ReplicaFacts> Launcher::ReplicasOf(const rendezvous::GenerationStart& start) const {
  std::vector<placement::ReplicaFacts> replicas;
  if (options_.whole) {
    for (const placement::DeviceAssignment& part : parts_) {
      replicas.push_back({.role = part.role,
                          .processes = static_cast<int>(part.processes.size()),
                          .address = start.replicas.front().host});
    }
    return replicas;
  }
  for (const rendezvous::Member& member : start.replicas) {
    const spec::Seat seat = spec::SeatOf(options_.job, member.replica);
    replicas.push_back({.role = options_.job.roles[static_cast<size_t>(seat.role)].name,
                        .index = seat.index,
                        .processes = member.processes,
                        .address = member.host});
  }
  return replicas;
}

void Launcher::SayGeneration(const rendezvous::GenerationStart& start) {
  std::vector<int> left_out;
  for (int replica = 0; replica < replicas(); ++replica) {
    const auto is_it = [&](const rendezvous::Member& member) { return member.replica == replica; };
    if (std::none_of(start.replicas.begin(), start.replicas.end(), is_it)) left_out.push_back(replica);
  }
  const std::string line = "generation " + std::to_string(start.generation) + " starts";
  if (left_out.empty()) {
    if (start.generation > 0) Say(line);
  } else {
    std::string names;
    for (const int replica : left_out) names += (names.empty() ? "" : ", ") + std::to_string(replica);
    SayAlways(line + " without replica" + (left_out.size() > 1 ? "s " : " ") + names + ": " +
              std::to_string(start.replicas.size()) + " of " + std::to_string(replicas()) + " replicas, " +
              std::to_string(start.world_size) + " processes");
  }
  state_->ReplicasLeftOut(std::move(left_out));
}

void Launcher::ReportDoneOnce() {
  if (!has_roles() || done_reported_) return;  // of one role: OnAllStopped
  bool some = false;
  for (const process::Launch& launch : launches_) {
    if (!spec::EndsJob(options_.job, launch.role)) continue;
    if (!ended_well_.contains(launch.local_rank)) return;
    some = true;
  }
  if (!some) return;
  done_reported_ = true;
  membership_->ReportDone();
}

std::string Launcher::HangOf(int rank) {
  if (!restarts_alone_) return hang_;
  return hung_.erase(rank) > 0 ? hang_ : "";
}

void Launcher::OnPeerLost(int replica, const std::string& message) {
  SayAlways(message);
  // Otherwise it is StopGeneration's to tell.
  if (!restarts_alone_ || options_.replica != 0) return;
  state_->RestartingAlone(
      telemetry::RestartReason::kReplicaLost,
      {.role = options_.job.roles[static_cast<size_t>(spec::SeatOf(options_.job, replica).role)].name,
       .replica = replica,
       .reason = kReplicaLostReason,
       .message = message},
      std::chrono::steady_clock::now());
}

void Launcher::OnFailedAlone(const rendezvous::FailureReport& failure) {
  const auto now = std::chrono::steady_clock::now();
  const auto since = ran_since_.find(failure.rank);
  const auto ran = now - (since == ran_since_.end() ? started_ : since->second);
  const process::Decision decision = process::DecideAlone(
      ExitOf(failure), rules_, history_, std::chrono::duration_cast<std::chrono::milliseconds>(ran));
  history_ = decision.history;
  first_failure_ = failure;
  if (!cannot_go_on_.empty()) return;  // the job is ending for it
  if (failure.own_trainer && failure.exit_code == contract::kExitSuperseded) {
    return membership_->Withdraw(contract::kExitSuperseded, failure.message);
  }
  if (decision.action != process::Decision::Action::kRestart) {
    return membership_->DecideFinish(decision.exit_code, decision.why);
  }
  ran_since_[failure.rank] = now + decision.delay;
  state_->RestartingAlone(RestartReasonOf(failure.reason), TelemetryFailureOf(failure), now);
  int restarts = 0;
  for (const auto& [rank, alone] : history_.alone) restarts += alone;
  SayAlways(
      "restarting " + process::RankInWords(ExitOf(failure)) + " alone (" + std::to_string(restarts) + " of " +
      std::to_string(rules_.max_restarts) + ")" +
      (decision.delay.count() > 0
           ? " in " +
                 std::to_string(std::chrono::duration_cast<std::chrono::seconds>(decision.delay).count()) +
                 " s"
           : ""));
  membership_->DecideRestartAlone(failure, decision.delay);
}

void Launcher::RestartAlone(const rendezvous::ProcessRestart& restart) {
  const int local_rank = restart.process;
  if (stop_reported_ || local_rank < 0 || static_cast<size_t>(local_rank) >= launches_.size()) return;
  Again& again = again_[local_rank];
  again.incarnation = restart.incarnation;
  again.timer = loop_->After(restart.delay, [this, local_rank] {
    again_[local_rank].timer = 0;
    StartAgain(local_rank);
  });
}

void Launcher::StartAgain(int local_rank) {
  // OnAllStopped is about to come, and asks again.
  if (supervisor_->state() == process::Supervisor::State::kSweeping) return;
  const int incarnation = again_[local_rank].incarnation;
  again_.erase(local_rank);
  process::Launch& launch = launches_[static_cast<size_t>(local_rank)];
  SetVariable(launch, contract::kIncarnation, std::to_string(incarnation));
  output_->Again(local_rank, incarnation);
  GiveInput(launch);
  ++running_;
  if (const Status status = supervisor_->Restart(launch); !status.ok()) {
    return Finish(contract::kExitRetryable, status.message());
  }
  const int pid = supervisor_->pid(local_rank);
  state_->RankStarted(identities_[static_cast<size_t>(local_rank)], pid, std::chrono::steady_clock::now());
  watch_->Again(launch.rank, pid);
}

void Launcher::ForgetRestarts() {
  for (const auto& [local_rank, again] : again_) loop_->Cancel(again.timer);
  again_.clear();
  loop_->Cancel(std::exchange(others_timer_, 0));
}

// The trainer's processes end by themselves once the workers are done. Programs' servers never do.
void Launcher::StopOthers() {
  if (!stopping_others_) return;
  const auto grace = options_.job.run_policy.termination_grace_period;
  const bool trainer_runs = std::any_of(launches_.begin(), launches_.end(), [this](const auto& launch) {
    return launch.own_trainer && supervisor_->pid(launch.local_rank) != 0;
  });
  if (!trainer_runs || others_had_their_time_) return supervisor_->Stop(grace);
  if (others_timer_ != 0) return;
  others_timer_ = loop_->After(grace, [this] {
    others_timer_ = 0;
    others_had_their_time_ = true;
    StopOthers();
  });
}

}  // namespace lockstep::job
