#include "trainer/train_loop.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

#include "common/log.h"
#include "trainer/backend/device_backend.h"
#include "trainer/error.h"

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

std::string Format(const char* format, auto... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

}  // namespace

int64_t MaxLocalBatch(const Config& config, int world_size) {
  return (config.batch_size + world_size - 1) / world_size;
}

TrainLoop::TrainLoop(const Parts& parts)
    : parts_(parts),
      sampler_({.samples = parts.dataset.training().count,
                .batch_size = parts.config.batch_size,
                .seed = parts.config.seed}),
      total_steps_(sampler_.batches_per_epoch() * parts.config.epochs),
      capacity_(MaxLocalBatch(parts.config, parts.environment.world.size)),
      feed_(MakeBatchFeed(parts.dataset, parts.model, parts.backend, capacity_)) {}

bool TrainLoop::MeasuresAccuracy() const { return !parts_.config.model.metrics.empty(); }

void TrainLoop::SetPhase(const char* phase) { parts_.events.Write(contract::PhaseEvent{.phase = phase}); }

TrainingPosition TrainLoop::Resume() {
  TrainingPosition position;
  if (parts_.checkpointing != nullptr) {
    if (const auto resumed = parts_.checkpointing->Resume()) {
      position = *resumed;
      parts_.events.Write(contract::ResumedEvent{.step = position.step});
    }
  }
  if (Reports() && !parts_.environment.ledger_file.empty()) {
    auto ledger = checkpoint::LedgerWriter::Open(parts_.environment.ledger_file,
                                                 parts_.environment.generation, position.step);
    if (!ledger.ok()) throw BadData("ledger: " + ledger.status().message());
    ledger_ = std::make_unique<checkpoint::LedgerWriter>(std::move(*ledger));
  }
  return position;
}

TrainingEnd TrainLoop::Run() {
  const int64_t epochs = parts_.config.epochs;
  done_ = Resume();
  next_ = done_.data;
  parts_.events.Write(contract::ReadyEvent{});
  SetPhase("Training");

  bool stop = false;
  while (true) {
    while (!stop && MayStartStep()) StartStep();
    if (started_.empty()) break;
    const int64_t epoch = started_.front().at.epoch;
    stop = FinishStep() || stop;
    const bool end_of_epoch = done_.data.epoch != epoch;
    if (end_of_epoch) EndEpoch();
    const bool ends = started_.empty() && (stop || done_.data.epoch == epochs);
    if (ends ? parts_.checkpointing != nullptr : CheckpointIsDue(done_.step, end_of_epoch)) {
      parts_.checkpointing->Save(done_);
    }
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
    const Evaluation test = Evaluate("test", parts_.dataset.test(), epochs - 1);
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
  const strategy::World& world = parts_.environment.world;
  started_.push_back({next_, Clock::now()});
  const auto shard = sampler_.Shard(next_, world.rank, world.size);
  const BatchFeed::Batch batch = feed_->Load(shard);
  parts_.strategy.StartStep({.inputs = batch.inputs,
                             .labels = batch.labels,
                             .local_samples = static_cast<int64_t>(shard.size()),
                             .global_samples = sampler_.BatchAt(next_).count});
  next_ = sampler_.Next(next_);
}

bool TrainLoop::FinishStep() {
  const Started started = started_.front();
  const strategy::StepResult result = parts_.strategy.FinishStep();
  started_.pop_front();

  done_.step += 1;
  done_.data = sampler_.Next(started.at);
  done_.epoch.loss += result.loss * static_cast<double>(result.samples);
  done_.epoch.correct += result.correct;
  done_.epoch.samples += result.samples;
  const data::Range batch = sampler_.BatchAt(started.at);
  if (ledger_ != nullptr) {
    const Status noted = ledger_->Append(done_.step, started.at.epoch, batch.first, batch.count);
    if (!noted.ok()) throw BadData("ledger: " + noted.message());
  }
  // Steps in flight overlap: each takes from the end of the one before.
  const double seconds = SecondsSince(std::max(started.time, finished_));
  finished_ = Clock::now();
  epoch_.seconds += seconds;
  epoch_.steps += 1;
  const strategy::World& world = parts_.environment.world;
  parts_.events.WriteStep({.step = done_.step,
                           .total_steps = total_steps_,
                           .epoch = started.at.epoch,
                           .samples = result.samples,
                           .loss = result.loss,
                           .learning_rate = parts_.optimizer.learning_rate(),
                           .seconds = seconds,
                           .collective_seconds = result.collective_seconds,
                           .collective_bytes = result.collective_bytes,
                           .flops = static_cast<double>(parts_.model.training_flops() *
                                                        data::ShardOf(batch, world.rank, world.size).count)});
  return result.stop;
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
    const Evaluation validation = Evaluate("validation", parts_.dataset.validation(), epoch);
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

TrainLoop::Evaluation TrainLoop::Evaluate(const char* split, data::Range samples, int64_t epoch) {
  SetPhase("Evaluating");
  const auto start = Clock::now();
  const strategy::World& world = parts_.environment.world;
  const data::Range mine = data::ShardOf(samples, world.rank, world.size);
  strategy::Totals local;
  // As often on every rank as on the first, which has the most: all ranks load equally often
  // (strategy::Batch).
  const int64_t most = data::ShardOf(samples, 0, world.size).count;
  for (int64_t done = 0; done < most; done += capacity_) {
    const int64_t count = std::clamp<int64_t>(mine.count - done, 0, capacity_);
    const BatchFeed::Batch batch = feed_->Load(data::Range{mine.first + done, count});
    const LossResult result = parts_.model.Evaluate(batch.inputs, batch.labels, count);
    local.loss_sum += result.loss_sum;
    local.correct += result.correct;
    local.samples += count;
  }
  const strategy::Totals all = parts_.strategy.Sum(local);
  const auto count = static_cast<double>(all.samples);
  const Evaluation evaluation{.loss = all.loss_sum / count + parts_.model.L2Penalty(),
                              .accuracy = static_cast<double>(all.correct) / count};
  parts_.events.Write(contract::EvaluationEvent{.split = split,
                                                .epoch = epoch,
                                                .loss = evaluation.loss,
                                                .accuracy = MeasuresAccuracy() ? evaluation.accuracy : -1,
                                                .seconds = SecondsSince(start)});
  return evaluation;
}

}  // namespace lockstep::trainer
