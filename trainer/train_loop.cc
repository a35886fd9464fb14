#include "trainer/train_loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>

#include "common/log.h"
#include "trainer/backend/device_backend.h"
#include "trainer/error.h"
#include "trainer/model_setup.h"

namespace lockstep::trainer {

namespace {

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Resident memory of this process in bytes; 0 where /proc does not say.
int64_t ResidentBytes() {
  long pages = 0, resident = 0;
  if (FILE* statm = std::fopen("/proc/self/statm", "re")) {
    if (std::fscanf(statm, "%ld %ld", &pages, &resident) != 2) resident = 0;
    std::fclose(statm);
  }
  return resident * 4096;
}

// A moving average of the loss, as the CIFAR-10 tutorial of TensorFlow 1 shows it: it begins at zero, and
// what that makes too small is put right as in its ExponentialMovingAverage (Kingma, Ba: Adam, section 3).
constexpr double kLossKept = 0.9;
double LossAverage(const TrainingPosition& position) {
  return position.loss_average / (1 - std::pow(kLossKept, static_cast<double>(position.step)));
}

std::string Format(const char* format, auto... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

}  // namespace

int64_t MaxLocalBatch(const Config& config, int shares) { return (config.batch_size + shares - 1) / shares; }

data::Sampler::Options TrainLoop::SamplerOptions(const Parts& parts) {
  return {.samples = parts.dataset.training().count,
          .batch_size = parts.config.batch_size,
          .seed = parts.config.seed};
}

TrainLoop::TrainLoop(const Parts& parts)
    : parts_(parts),
      sampler_(SamplerOptions(parts)),
      total_steps_(TotalSteps(parts.config, parts.dataset.training().count)),
      share_(parts.strategy.data_share()),
      capacity_(MaxLocalBatch(parts.config, share_.count)),
      feed_(BatchFeed::Make({.dataset = parts.dataset,
                             .model = parts.model,
                             .backend = parts.backend,
                             .augmentation = parts.augmentation,
                             .sampler = SamplerOptions(parts),
                             .epochs = parts.config.epochs,
                             .share = share_.index,
                             .shares = share_.count,
                             .in_flight = parts.strategy.max_in_flight(),
                             .capacity = capacity_,
                             .trace = parts.trace})) {
  if (!parts.held) return;
  done_ = parts.held->position;
  last_ = parts.held->last;
  left_ = parts.held->left;
  has_state_ = true;
}

bool TrainLoop::MeasuresAccuracy() const { return !parts_.config.model.metrics.empty(); }

void TrainLoop::SetPhase(const char* phase) { parts_.events.Write(contract::PhaseEvent{.phase = phase}); }

TrainingPosition TrainLoop::Resume() {
  if (parts_.held) {
    if (parts_.checkpointing != nullptr) parts_.checkpointing->TakeOver();
    parts_.events.Write(contract::ResumedEvent{.step = parts_.held->position.step});
    return parts_.held->position;
  }
  TrainingPosition position;
  if (parts_.checkpointing != nullptr) {
    if (const auto resumed = parts_.checkpointing->Resume()) {
      position = *resumed;
      parts_.events.Write(contract::ResumedEvent{.step = position.step});
    }
  }
  return position;
}

void TrainLoop::OpenLedger() {
  if (!Reports() || parts_.environment.ledger_file.empty()) return;
  auto ledger = checkpoint::LedgerWriter::Open(parts_.environment.ledger_file, parts_.environment.generation,
                                               done_.step, last_.epoch, last_.first, last_.count);
  if (!ledger.ok()) throw BadData("ledger: " + ledger.status().message());
  ledger_ = std::make_unique<checkpoint::LedgerWriter>(std::move(*ledger));
}

TrainingEnd TrainLoop::Run() {
  const int64_t epochs = parts_.config.epochs;
  done_ = Resume();
  next_ = done_.data;
  OpenLedger();
  has_state_ = true;
  parts_.events.Write(contract::ReadyEvent{.regroups = parts_.regroups, .layers = parts_.layers});
  SetPhase("Training");
  CloseStep(false);

  bool stop = false;
  while (true) {
    while (!stop && MayStartStep()) StartStep();
    if (started_.empty()) break;
    stop = FinishStep() || stop;
    CloseStep(stop);
  }

  if (done_.data.epoch < epochs) {
    if (parts_.checkpointing != nullptr) {
      SetPhase("Checkpointing");
      parts_.checkpointing->Flush();
    }
    parts_.strategy.Finish();
    return TrainingEnd::kStopped;
  }
  if (parts_.dataset.test().count > 0) {
    const Evaluation test = EvaluateAsAsked("test", parts_.dataset.test(), epochs - 1);
    if (Reports()) {
      std::string line = Format("test: loss %.4f", test.loss);
      if (MeasuresAccuracy()) line += Format(", accuracy %.4f", test.accuracy);
      std::puts(line.c_str());
    }
  }
  if (parts_.checkpointing != nullptr) {
    SetPhase("Checkpointing");
    parts_.checkpointing->Flush();
  }
  parts_.strategy.Finish();
  return TrainingEnd::kDone;
}

bool TrainLoop::MayStartStep() const {
  if (next_.epoch == parts_.config.epochs) return false;
  if (started_.empty()) return true;
  const auto in_flight = static_cast<int64_t>(started_.size());
  return in_flight < parts_.strategy.max_in_flight() && next_.epoch == started_.back().at.epoch &&
         !CheckpointIsDue(done_.step + in_flight, false);
}

void TrainLoop::StartStep() {
  started_.push_back({.at = next_, .time = Clock::now()});
  if (parts_.trace != nullptr) {
    parts_.trace->BeginStep(done_.step + static_cast<int64_t>(started_.size()));
  }
  const auto shard = sampler_.Shard(next_, share_.index, share_.count);
  const BatchFeed::Batch batch = LoadTraced(shard);
  started_.back().data_wait = SecondsSince(started_.back().time);
  parts_.strategy.StartStep({.inputs = batch.inputs,
                             .labels = batch.labels,
                             .local_samples = static_cast<int64_t>(shard.size()),
                             .global_samples = sampler_.BatchAt(next_).count,
                             .epoch = next_.epoch,
                             .samples = shard});
  next_ = sampler_.Next(next_);
}

BatchFeed::Batch TrainLoop::LoadTraced(std::span<const uint32_t> shard) {
  const trace::Scope scope(parts_.trace, trace::Track::kData, "data wait");
  return feed_->Load(next_, shard);
}

bool TrainLoop::FinishStep() {
  const strategy::StepResult result = parts_.strategy.FinishStep();
  Count(result);
  return result.stop;
}

void TrainLoop::CloseStep(bool stop) {
  const bool end_of_epoch = done_.data.offset == 0;
  if (left_ == AfterStep::kEpoch) EndEpoch();
  if (left_ == AfterStep::kNothing) return;
  left_ = AfterStep::kSave;
  const bool ends = started_.empty() && (stop || done_.data.epoch == parts_.config.epochs);
  if (ends ? parts_.checkpointing != nullptr : CheckpointIsDue(done_.step, end_of_epoch)) {
    const trace::Scope scope(parts_.trace, trace::Track::kCompute, "checkpoint");
    parts_.checkpointing->Save(done_);
  }
  left_ = AfterStep::kNothing;
}

std::vector<Held> TrainLoop::Keep() {
  std::vector<Held> held;
  for (strategy::Committed& committed : parts_.strategy.TakeCommitted(parts_.model)) {
    if (committed.finished) Count(*committed.finished);
    held.push_back({.state = std::move(committed.state),
                    .parts = std::move(committed.parts),
                    .division = committed.division,
                    .position = done_,
                    .last = last_,
                    .left = left_});
  }
  return held;
}

void TrainLoop::Count(const strategy::StepResult& result) {
  const Started started = started_.front();
  started_.pop_front();

  done_.step += 1;
  done_.data = sampler_.Next(started.at);
  done_.epoch.loss += result.loss * static_cast<double>(result.samples);
  done_.epoch.correct += result.correct;
  done_.epoch.samples += result.samples;
  done_.loss_average = kLossKept * done_.loss_average + (1 - kLossKept) * result.loss;
  const data::Range batch = sampler_.BatchAt(started.at);
  last_ = {.epoch = started.at.epoch, .first = batch.first, .count = batch.count};
  left_ = done_.data.epoch == started.at.epoch ? AfterStep::kSave : AfterStep::kEpoch;
  if (ledger_ != nullptr) {
    const Status noted = ledger_->Append(done_.step, started.at.epoch, batch.first, batch.count);
    if (!noted.ok()) throw BadData("ledger: " + noted.message());
  }
  // Steps in flight overlap: each takes from the end of the one before.
  const Clock::time_point begin = std::max(started.time, finished_);
  const double seconds = SecondsSince(begin);
  finished_ = Clock::now();
  if (parts_.trace != nullptr) {
    parts_.trace->Add({.name = "step",
                       .track = trace::Track::kSteps,
                       .begin = begin,
                       .end = finished_,
                       .step = done_.step});
  }
  epoch_.seconds += seconds;
  epoch_.steps += 1;
  parts_.events.WriteStep(
      {.step = done_.step,
       .total_steps = total_steps_,
       .epoch = started.at.epoch,
       .samples = result.samples,
       .loss = result.loss,
       .loss_average = LossAverage(done_),
       .learning_rate = parts_.optimizer.learning_rate(done_.step),
       .seconds = seconds,
       .collective_seconds = result.collective_seconds,
       .data_wait_seconds = started.data_wait,
       .collective_bytes = result.collective_bytes,
       .flops = static_cast<double>(parts_.model.training_flops() *
                                    data::ShardOf(batch, share_.index, share_.count).count)});
}

void TrainLoop::TellMemory() {
  auto* device = dynamic_cast<DeviceBackend*>(&parts_.backend);
  if (device == nullptr) {
    parts_.events.Write(contract::MemoryEvent{.bytes = ResidentBytes(), .kind = "used"});
    return;
  }
  const DeviceMemoryUse use = device->memory_use();
  const std::pair<const char*, int64_t> kinds[] = {{"held", use.held},
                                                   {"used", use.used},
                                                   {"peak", use.peak},
                                                   {"limit", use.limit},
                                                   {"context", use.context}};
  for (const auto& [kind, bytes] : kinds) {
    if (bytes > 0) parts_.events.Write(contract::MemoryEvent{.bytes = bytes, .kind = kind});
  }
}

void TrainLoop::EndEpoch() {
  const EpochSums& sums = done_.epoch;
  const int64_t epoch = done_.data.epoch - 1;
  const int64_t samples = std::min(epoch_.steps * parts_.config.batch_size, sums.samples);
  const double samples_per_second = epoch_.seconds > 0 ? static_cast<double>(samples) / epoch_.seconds : 0;
  TellMemory();
  std::string line =
      Format("epoch %ld/%ld: loss %.4f", static_cast<long>(epoch + 1),
             static_cast<long>(parts_.config.epochs), sums.loss / static_cast<double>(sums.samples));
  if (MeasuresAccuracy()) {
    line += Format(", accuracy %.4f", static_cast<double>(sums.correct) / static_cast<double>(sums.samples));
  }
  if (parts_.dataset.validation().count > 0) {
    const Evaluation validation = EvaluateAsAsked("validation", parts_.dataset.validation(), epoch);
    line += Format(", validation loss %.4f", validation.loss);
    if (MeasuresAccuracy()) line += Format(", validation accuracy %.4f", validation.accuracy);
    SetPhase("Training");
  }
  line += Format(", %.0f samples/s", samples_per_second);
  if (Reports()) {
    std::puts(line.c_str());
    std::fflush(stdout);
  }
  done_.epoch = {};
  epoch_ = {};
}

TrainLoop::Evaluation TrainLoop::EvaluateAsAsked(const char* split, data::Range samples, int64_t epoch) {
  if (!parts_.config.evaluate_average) return Evaluate(split, samples, epoch);
  parts_.strategy.UseAverage(true);
  const Evaluation evaluation = Evaluate(split, samples, epoch);
  parts_.strategy.UseAverage(false);
  return evaluation;
}

TrainLoop::Evaluation TrainLoop::Evaluate(const char* split, data::Range samples, int64_t epoch) {
  SetPhase("Evaluating");
  const trace::Scope scope(parts_.trace, trace::Track::kCompute, "evaluate");
  const auto start = Clock::now();
  if (ReplicaSum* const replicas = parts_.strategy.replica_sum();
      replicas != nullptr && parts_.model.state_differs()) {
    parts_.model.AverageState(*replicas, share_.count);
  }
  const data::Range mine = data::ShardOf(samples, share_.index, share_.count);
  strategy::Totals local;
  // As often on every rank as on the first, which has the most: all ranks load equally often
  // (strategy::Batch).
  const int64_t most = data::ShardOf(samples, 0, share_.count).count;
  // (Of a step in pieces there is memory for a piece.)
  const int pieces = parts_.config.gradient_accumulation;
  const int64_t pass = (capacity_ + pieces - 1) / pieces;
  for (int64_t done = 0; done < most; done += pass) {
    const int64_t count = std::clamp<int64_t>(mine.count - done, 0, pass);
    const BatchFeed::Batch batch = feed_->Load(data::Range{mine.first + done, count});
    const strategy::Totals some = parts_.strategy.Evaluate(parts_.model, batch.inputs, batch.labels, count);
    local.loss_sum += some.loss_sum;
    local.correct += some.correct;
    local.samples += some.samples;
  }
  const strategy::Totals all = parts_.strategy.Sum(local);
  const auto count = static_cast<double>(all.samples);
  const Evaluation evaluation{.loss = all.loss_sum / count + parts_.strategy.L2Penalty(parts_.model),
                              .accuracy = static_cast<double>(all.correct) / count};
  parts_.events.Write(contract::EvaluationEvent{.split = split,
                                                .epoch = epoch,
                                                .loss = evaluation.loss,
                                                .accuracy = MeasuresAccuracy() ? evaluation.accuracy : -1,
                                                .seconds = SecondsSince(start)});
  return evaluation;
}

}  // namespace lockstep::trainer
