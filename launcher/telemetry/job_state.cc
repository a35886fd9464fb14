#include "launcher/telemetry/job_state.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "launcher/telemetry/layer_graph.h"

namespace lockstep::telemetry {

namespace {

constexpr std::array<std::string_view, 5> kPhases = {"Pending", "Running", "Restarting", "Succeeded",
                                                     "Failed"};
constexpr std::array<std::string_view, 3> kStates = {"Pending", "Running", "Exited"};

constexpr size_t kMaxLayers = 4096;    // bytes of what a process says of its layers
constexpr size_t kMostLayers = 2000;   // that are kept of a rank, for the graph
constexpr size_t kMaxLayerText = 256;  // bytes of each of their words

template <typename... Callables>
struct Overloaded : Callables... {
  using Callables::operator()...;
};
template <typename... Callables>
Overloaded(Callables...) -> Overloaded<Callables...>;

}  // namespace

std::string_view JobPhaseName(JobPhase phase) { return kPhases[static_cast<size_t>(phase)]; }
std::string_view RankStateName(RankState state) { return kStates[static_cast<size_t>(state)]; }

JobState::JobState(JobDescription description, JobMetrics& metrics, TimePoint now, RunRecord* record)
    : metrics_(metrics),
      record_(record),
      started_(now),
      started_wall_(std::chrono::system_clock::now()),
      last_tick_(now.time_since_epoch().count()),
      description_(std::move(description)),
      balance_(/*in_lockstep=*/description_.strategy != "ParameterServer"),
      ledger_(now) {}

std::chrono::system_clock::time_point JobState::ToWall(TimePoint time) const {
  return started_wall_ + std::chrono::duration_cast<std::chrono::system_clock::duration>(time - started_);
}

std::chrono::steady_clock::duration JobState::LoopSilence(TimePoint now) const {
  const TimePoint last(TimePoint::duration(last_tick_.load(std::memory_order_relaxed)));
  return std::max(TimePoint::duration::zero(), now - last);
}

void JobState::GenerationStarted(int generation, TimePoint now) {
  const std::lock_guard lock(mutex_);
  ledger_.Started(now);
  generation_ = generation;
  generations_.Began(generation, description_.world_size, SecondsAt(now));
  if (record_ != nullptr) record_->Generation(generation, ToWall(now));
  leader_ = -1;
  meter_.Restart();
  for (auto& [number, rank] : ranks_) {
    rank.snapshot.state = RankState::kPending;
    rank.snapshot.phase = RankPhase::kStarting;
    rank.snapshot.pid = 0;
    rank.stepped = false;
    rank.ready = false;
    rank.layers.clear();
  }
}

void JobState::RankStarted(const RankIdentity& identity, int pid, TimePoint now) {
  const std::lock_guard lock(mutex_);
  metrics_.AddRank(identity);
  Rank& rank = ranks_[identity.rank];
  rank.snapshot.identity = identity;
  rank.snapshot.state = RankState::kRunning;
  rank.snapshot.phase = RankPhase::kStarting;
  // (One that regrouped goes on as it is.)
  if (rank.last_pid != 0 && rank.last_pid != pid) rank.snapshot.restarts += 1;
  rank.last_pid = pid;
  rank.snapshot.pid = pid;
  rank.snapshot.exit_code.reset();
  rank.snapshot.layers.clear();
  rank.snapshot.memory_bytes.reset();
  rank.snapshot.memory_held.reset();
  rank.snapshot.memory_peak.reset();
  rank.started = now;
  rank.last_progress = now;
  rank.stepped = false;
  rank.ready = false;
  rank.layers.clear();
  phase_ = JobPhase::kRunning;
}

void JobState::ApplyEvent(int rank_number, const contract::Event& event, TimePoint now) {
  const std::lock_guard lock(mutex_);
  const auto it = ranks_.find(rank_number);
  if (it == ranks_.end()) return;
  Rank& rank = it->second;
  const bool is_leader = rank.snapshot.identity.steps && (leader_ < 0 || rank_number <= leader_);
  const auto set_phase = [&](RankPhase phase) {
    if (rank.snapshot.phase == phase) return;  // saying the same again is no progress
    rank.snapshot.phase = phase;
    rank.last_progress = now;
    if (is_leader && phase != RankPhase::kTraining) meter_.Pause();
  };

  std::visit(
      Overloaded{
          [&](const contract::ReadyEvent& e) {
            set_phase(RankPhase::kTraining);
            rank.snapshot.layers = e.layers.substr(0, kMaxLayers);
            rank.ready = true;
            RecordGraph(now);
          },
          [&](const contract::LayerEvent& e) {
            if (rank.layers.size() == kMostLayers) return;
            contract::LayerEvent& kept = rank.layers.emplace_back(e);
            for (std::string* text : {&kept.name, &kept.type, &kept.output, &kept.device}) {
              *text = text->substr(0, kMaxLayerText);  // (and not the capacity of the whole)
            }
          },
          [&](const contract::PhaseEvent& e) {
            if (const auto phase = ParseRankPhase(e.phase)) set_phase(*phase);
          },
          [&](const contract::StepEvent& e) {
            set_phase(RankPhase::kTraining);
            ApplyStep(rank, e, now);
          },
          [&](const contract::EvaluationEvent& e) { ApplyEvaluation(rank, e, is_leader, now); },
          [&](const contract::CheckpointEvent& e) {
            metrics_.Checkpoint(e, ToWall(now));
            if (record_ != nullptr) record_->Checkpoint(e, ToWall(now));
            ledger_.Lose(Loss::kCheckpoint, e.blocking_seconds, now);
            balance_.Blocked(e.blocking_seconds);
          },
          [&](const contract::MemoryEvent& e) {
            metrics_.Memory(rank_number, e);
            if (e.kind == "used") rank.snapshot.memory_bytes = e.bytes;
            if (e.kind == "held") rank.snapshot.memory_held = e.bytes;
            if (e.kind == "peak") rank.snapshot.memory_peak = e.bytes;
          },
          [&](const contract::ResumedEvent& e) {
            rank.last_progress = now;
            rank.snapshot.step = e.step;
            if (!is_leader) return;
            if (!progress_) progress_.emplace();
            progress_->step = e.step;
            progress_->last_updated = ToWall(now);
            if (record_ != nullptr) record_->Resumed(e.step, ToWall(now));
          },
          // What it says reaches RankExited's caller through the exit report; here it is only a last sign.
          [&](const contract::ErrorEvent&) {},
          [&](const contract::RegroupEvent& e) {
            set_phase(RankPhase::kRegrouping);
            rank.snapshot.step = e.step;
          },
      },
      event);
}

void JobState::RecordGraph(TimePoint now) {
  if (record_ == nullptr) return;
  std::vector<std::vector<contract::LayerEvent>> layers;
  for (const auto& [number, rank] : ranks_) {
    if (!rank.snapshot.identity.steps) continue;
    if (!rank.ready) return;
    layers.push_back(rank.layers);
  }
  record_->Graph(LayerGraph(layers), ToWall(now));
}

void JobState::ApplyEvaluation(const Rank& rank, const contract::EvaluationEvent& event, bool is_leader,
                               TimePoint now) {
  // (Nobody waits for an evaluator.)
  if (is_leader) ledger_.Lose(Loss::kEvaluation, event.seconds, now);
  if (EvaluatesForJob(rank)) {
    metrics_.Evaluation(event);
    if (record_ != nullptr) record_->Evaluation(event, progress_ ? progress_->step : 0, ToWall(now));
  } else if (!is_leader) {
    return;
  }
  if (event.accuracy < 0 || !progress_) return;
  progress_->accuracy = event.accuracy;
  progress_->accuracy_split = event.split;
  progress_->last_updated = ToWall(now);
}

void JobState::ApplyWindow(const std::optional<RankBalance::Window>& window, TimePoint now) {
  if (!window) return;
  metrics_.ExposedCommunication(window->exposed);
  ledger_.Lose(Loss::kDataWait, window->data_wait, now);
  ledger_.Lose(Loss::kStraggler, window->straggling, now);
}

void JobState::StopGeneration(Loss until_started, TimePoint now) {
  ApplyWindow(balance_.End(), now);
  ledger_.Stopped(now, until_started);
}

void JobState::ApplyStep(Rank& rank, const contract::StepEvent& event, TimePoint now) {
  const int number = rank.snapshot.identity.rank;
  metrics_.Step(number, event, number == speaker_);
  rank.snapshot.step = event.step;
  rank.snapshot.step_seconds = event.seconds / static_cast<double>(event.steps);
  rank.snapshot.collective_seconds = event.collective_seconds / static_cast<double>(event.steps);
  rank.last_progress = now;
  rank.stepped = true;
  if (!rank.snapshot.identity.steps) return;
  ApplyWindow(balance_.Step(number, event, now), now);
  if (leader_ >= 0 && number > leader_) return;

  // Another rank was quicker to report this very step.
  const bool counted_already = leader_ > number && progress_ && event.step <= progress_->step;
  leader_ = number;
  if (!counted_already) {
    const double took = meter_.Step(event.samples, event.seconds, now, event.steps);
    curve_.Add({.seconds = SecondsAt(now),
                .step = event.step,
                .samples = event.samples,
                .took = took,
                .loss = event.loss});
    ledger_.Step(event.step, event.seconds, now, event.steps);
  }
  if (!progress_) progress_.emplace();
  progress_->step = event.step;
  if (event.total_steps > 0) progress_->total_steps = event.total_steps;
  progress_->epoch = event.epoch;
  progress_->loss = std::isnan(event.loss) ? std::nullopt : std::optional(event.loss);
  progress_->loss_average = std::isnan(event.loss_average) ? std::nullopt : std::optional(event.loss_average);
  progress_->learning_rate = event.learning_rate;
  progress_->last_updated = ToWall(now);
  if (record_ == nullptr || !record_->WantsStep(event.step)) return;
  Progress kept = *progress_;
  kept.samples_per_second = meter_.samples_per_second();
  record_->Step(kept, SecondsAt(now));
}

void JobState::Wrote(int rank, TimePoint now) {
  const std::lock_guard lock(mutex_);
  const auto it = ranks_.find(rank);
  if (it != ranks_.end()) it->second.last_output = now;
}

void JobState::MalformedEvent(int) {
  metrics_.MalformedEvent();
  const std::lock_guard lock(mutex_);
  ++malformed_events_;
}

void JobState::RankExited(int rank_number, int exit_code, TimePoint now) {
  const std::lock_guard lock(mutex_);
  const auto it = ranks_.find(rank_number);
  if (it == ranks_.end()) return;
  it->second.snapshot.state = RankState::kExited;
  it->second.snapshot.exit_code = exit_code;
  it->second.snapshot.pid = 0;
  if (record_ != nullptr) record_->RankExited(rank_number, exit_code, ToWall(now));
}

void JobState::DeviceRead(DeviceSnapshot device) {
  const std::lock_guard lock(mutex_);
  metrics_.Device(device);
  devices_[device.index] = std::move(device);
}

bool JobState::EvaluatesForJob(const Rank& rank) const {
  const RankIdentity& identity = rank.snapshot.identity;
  return identity.rank == speaker_ || identity.role == "evaluator";
}

void JobState::WorldChanged(int world_size, std::span<const RankIdentity> ranks, int speaker) {
  const std::lock_guard lock(mutex_);
  description_.world_size = world_size;
  speaker_ = speaker;
  std::map<int, Rank> before = std::exchange(ranks_, {});
  for (const RankIdentity& identity : ranks) {
    Rank& rank = ranks_[identity.rank];
    if (auto known = before.extract(identity.rank)) rank = std::move(known.mapped());
    rank.snapshot.identity = identity;
  }
}

void JobState::Restarting(RestartReason reason, Failure failure, TimePoint now) {
  const std::lock_guard lock(mutex_);
  metrics_.Restart(reason);
  phase_ = JobPhase::kRestarting;
  ++restarts_;
  restart_reason_ = reason;
  generations_.Ended(failure.reason, failure.message, SecondsAt(now));
  failure.time = ToWall(now);
  if (record_ != nullptr) record_->Restarting(RestartReasonName(reason), &failure, failure.time);
  last_failure_ = std::move(failure);
  StopGeneration(reason == RestartReason::kReplicaLost ? Loss::kWaitingForResources : Loss::kRestart, now);
}

void JobState::RestartingAlone(RestartReason reason, Failure failure, TimePoint now) {
  const std::lock_guard lock(mutex_);
  metrics_.RestartAlone(reason, failure.role);
  ++restarts_;
  generations_.RestartedAlone();
  failure.time = ToWall(now);
  if (record_ != nullptr) record_->Restarting(RestartReasonName(reason), &failure, failure.time);
  last_failure_ = std::move(failure);
}

void JobState::Resizing(TimePoint now) {
  const std::lock_guard lock(mutex_);
  metrics_.Restart(RestartReason::kResized);
  phase_ = JobPhase::kRestarting;
  restart_reason_ = RestartReason::kResized;
  generations_.Ended("Resized", "to go on with other replicas", SecondsAt(now));
  if (record_ != nullptr) record_->Restarting(RestartReasonName(restart_reason_), nullptr, ToWall(now));
  StopGeneration(Loss::kRestart, now);
}

void JobState::FailedElsewhere(const std::string& message, TimePoint now) {
  const std::lock_guard lock(mutex_);
  generations_.Ended("Failure", message, SecondsAt(now));
}

void JobState::ReplicasLeftOut(std::vector<int> replicas) {
  const std::lock_guard lock(mutex_);
  left_out_ = std::move(replicas);
}

void JobState::Finished(bool succeeded, std::optional<Failure> failure, TimePoint now) {
  const std::lock_guard lock(mutex_);
  phase_ = succeeded ? JobPhase::kSucceeded : JobPhase::kFailed;
  completed_ = now;
  if (record_ != nullptr) {
    record_->Finished(succeeded, progress_ ? &*progress_ : nullptr, SecondsAt(now), ToWall(now));
  }
  StopGeneration(Loss::kRestart, now);
  generations_.Ended(failure ? failure->reason : std::string(JobPhaseName(phase_)),
                     failure ? failure->message : "", SecondsAt(now));
  if (!failure) return;
  failure->time = ToWall(now);
  last_failure_ = std::move(failure);
}

std::string JobState::WhyNotReady(TimePoint now) const {
  if (phase_ != JobPhase::kRunning) return "the job is " + std::string(JobPhaseName(phase_));
  if (leader_ >= 0) return "";
  const bool steps = std::any_of(ranks_.begin(), ranks_.end(),
                                 [](const auto& rank) { return rank.second.snapshot.identity.steps; });
  if (description_.reports_steps && (steps || ranks_.empty()))
    return "no step yet in generation " + std::to_string(generation_);
  for (const auto& [number, rank] : ranks_) {
    if (rank.snapshot.state == RankState::kExited && rank.snapshot.exit_code == 0) continue;
    if (rank.snapshot.state != RankState::kRunning || now - rank.started < kReadyWithoutSteps) {
      return "rank " + std::to_string(number) + " has not run for " +
             std::to_string(kReadyWithoutSteps.count()) + " s";
    }
  }
  return "";
}

JobSnapshot JobState::Snapshot(TimePoint now) const {
  const std::lock_guard lock(mutex_);
  const TimePoint end = completed_.value_or(now);
  JobSnapshot snapshot;
  snapshot.description = description_;
  snapshot.phase = phase_;
  snapshot.generation = generation_;
  snapshot.restarts = restarts_;
  snapshot.start_time = started_wall_;
  if (completed_) snapshot.completion_time = ToWall(*completed_);
  snapshot.elapsed_seconds = SecondsAt(end);
  snapshot.ranks.reserve(ranks_.size());
  for (const auto& [number, rank] : ranks_) {
    snapshot.ranks.push_back(rank.snapshot);
    const auto delay = balance_.delays().find(number);
    if (delay != balance_.delays().end()) snapshot.ranks.back().delay = delay->second;
  }
  for (const auto& [index, device] : devices_) snapshot.devices.push_back(device);
  snapshot.progress = progress_;
  if (snapshot.progress) {
    Progress& progress = *snapshot.progress;
    progress.samples_per_second = meter_.samples_per_second();
    if (progress.total_steps > 0) {
      const int64_t left = std::max<int64_t>(0, progress.total_steps - progress.step);
      progress.percentage = static_cast<int>(100.0 * static_cast<double>(progress.total_steps - left) /
                                             static_cast<double>(progress.total_steps));
      if (const auto step_seconds = meter_.seconds_per_step()) {
        progress.remaining_seconds = static_cast<double>(left) * *step_seconds;
      }
    }
  }
  snapshot.mean_samples_per_second = meter_.mean_samples_per_second();
  snapshot.last_failure = last_failure_;
  snapshot.time = ledger_.time(end);
  snapshot.goodput = ledger_.goodput(end);
  snapshot.straggler = balance_.straggler();
  snapshot.generations = generations_.records();
  snapshot.generations_forgotten = generations_.forgotten();
  snapshot.malformed_events = malformed_events_;
  snapshot.left_out = left_out_;
  snapshot.resizing = phase_ == JobPhase::kRestarting && restart_reason_ == RestartReason::kResized;
  snapshot.ready_reason = WhyNotReady(now);
  snapshot.ready = snapshot.ready_reason.empty();
  return snapshot;
}

JobFigures JobState::Figures(TimePoint now) {
  const std::lock_guard lock(mutex_);
  const TimePoint end = completed_.value_or(now);
  JobFigures figures;
  if (ranks_.contains(0)) {
    figures.goodput = ledger_.goodput(end);
    figures.time = ledger_.Tell(end);
  }
  for (const auto& [number, delay] : balance_.delays()) {
    const auto rank = ranks_.find(number);
    if (rank != ranks_.end())
      figures.delays.push_back({.rank = rank->second.snapshot.identity, .seconds = delay});
  }
  return figures;
}

std::vector<CurvePoint> JobState::curve() const {
  const std::lock_guard lock(mutex_);
  return curve_.points();
}

std::vector<RankProgress> JobState::rank_progress() const {
  const std::lock_guard lock(mutex_);
  std::vector<RankProgress> result;
  for (const auto& [number, rank] : ranks_) {
    if (rank.snapshot.state != RankState::kRunning || !rank.snapshot.identity.steps) continue;
    result.push_back({.rank = number,
                      .phase = rank.snapshot.phase,
                      .step = rank.snapshot.step,
                      .stepped = rank.stepped,
                      .last_progress = rank.last_progress,
                      .last_output = rank.last_output,
                      .process_state = 0});
  }
  return result;
}

std::optional<Progress> JobState::progress() const {
  const std::lock_guard lock(mutex_);
  return progress_;
}

double JobState::median_step_seconds() const {
  const std::lock_guard lock(mutex_);
  return meter_.median_step_seconds();
}

}  // namespace lockstep::telemetry
