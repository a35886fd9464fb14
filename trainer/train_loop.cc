#include "trainer/train_loop.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "common/log.h"
#include "trainer/error.h"

namespace lockstep::trainer {

namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
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
      capacity_(MaxLocalBatch(parts.config, parts.environment.world.size)),
      inputs_(HostAllocator(), capacity_ * parts.model.features() * SizeOf(parts.model.input_type())),
      labels_(HostAllocator(), capacity_ * sizeof(int32_t)) {}

bool TrainLoop::MeasuresAccuracy() const { return !parts_.config.model.metrics.empty(); }

void TrainLoop::SetPhase(const char* phase) { parts_.events.Write(contract::PhaseEvent{.phase = phase}); }

TrainingPosition TrainLoop::Start() {
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
  const Config& config = parts_.config;
  const int64_t total_steps = sampler_.batches_per_epoch() * config.epochs;
  TrainingPosition position = Start();
  parts_.events.Write(contract::ReadyEvent{});
  SetPhase("Training");

  bool stop = false;
  double epoch_seconds = 0;
  int64_t epoch_steps = 0;
  while (!stop && position.data.epoch < config.epochs) {
    const auto start = Clock::now();
    const data::Range batch = sampler_.BatchAt(position.data);
    const strategy::StepResult result = Step(position);
    stop = result.stop;

    const int64_t epoch = position.data.epoch;
    position.step += 1;
    position.data = sampler_.Next(position.data);
    position.epoch.loss += result.loss * static_cast<double>(result.samples);
    position.epoch.correct += result.correct;
    position.epoch.samples += result.samples;
    if (ledger_ != nullptr) {
      const Status noted = ledger_->Append(position.step, epoch, batch.first, batch.count);
      if (!noted.ok()) throw BadData("ledger: " + noted.message());
    }
    const double seconds = SecondsSince(start);
    epoch_seconds += seconds;
    epoch_steps += 1;
    const data::Range mine =
        data::ShardOf(batch, parts_.environment.world.rank, parts_.environment.world.size);
    parts_.events.WriteStep({.step = position.step,
                             .total_steps = total_steps,
                             .epoch = epoch,
                             .samples = result.samples,
                             .loss = result.loss,
                             .learning_rate = parts_.optimizer.learning_rate(),
                             .seconds = seconds,
                             .collective_seconds = result.collective_seconds,
                             .collective_bytes = result.collective_bytes,
                             .flops = static_cast<double>(parts_.model.training_flops() * mine.count)});

    const bool end_of_epoch = position.data.epoch != epoch;
    if (end_of_epoch) {
      const double samples_per_second =
          epoch_seconds > 0
              ? static_cast<double>(std::min(epoch_steps * config.batch_size, position.epoch.samples)) /
                    epoch_seconds
              : 0;
      EndEpoch(position, samples_per_second);
      position.epoch = {};
      epoch_seconds = 0;
      epoch_steps = 0;
    }
    const bool done = position.data.epoch == config.epochs;
    if (parts_.checkpointing != nullptr &&
        (stop || done || parts_.checkpointing->Due(position.step, end_of_epoch))) {
      parts_.checkpointing->Save(position);
    }
  }

  if (stop && position.data.epoch < config.epochs) {
    if (parts_.checkpointing != nullptr) {
      SetPhase("Checkpointing");
      parts_.checkpointing->Flush();
    }
    parts_.strategy.Finish();
    return TrainingEnd::kStopped;
  }
  if (parts_.dataset.test().count > 0) {
    const Evaluation test = Evaluate("test", parts_.dataset.test(), config.epochs - 1);
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

template <typename Samples>
void TrainLoop::Gather(const Samples& samples) {
  if (parts_.model.input_type() == DataType::kBFloat16) {
    parts_.dataset.GatherBfloat16(samples, inputs_.as<uint16_t>());
  } else {
    parts_.dataset.Gather(samples, inputs_.as<float>());
  }
  if (parts_.model.loss() == LossKind::kMeanSquaredError) {
    parts_.dataset.GatherValues(samples, labels_.as<float>());
  } else {
    parts_.dataset.GatherLabels(samples, labels_.as<int32_t>());
  }
}

strategy::StepResult TrainLoop::Step(const TrainingPosition& position) {
  const strategy::World& world = parts_.environment.world;
  const auto shard = sampler_.Shard(position.data, world.rank, world.size);
  Gather(shard);
  return parts_.strategy.TrainStep({.inputs = inputs_.data(),
                                    .labels = labels_.data(),
                                    .local_samples = static_cast<int64_t>(shard.size()),
                                    .global_samples = sampler_.BatchAt(position.data).count});
}

void TrainLoop::EndEpoch(const TrainingPosition& position, double samples_per_second) {
  const EpochSums& sums = position.epoch;
  const int64_t epoch = position.data.epoch - 1;
  parts_.events.Write(contract::MemoryEvent{.bytes = ResidentBytes(), .kind = "used"});
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
}

TrainLoop::Evaluation TrainLoop::Evaluate(const char* split, data::Range samples, int64_t epoch) {
  SetPhase("Evaluating");
  const auto start = Clock::now();
  const strategy::World& world = parts_.environment.world;
  const data::Range mine = data::ShardOf(samples, world.rank, world.size);
  strategy::Totals local;
  for (int64_t done = 0; done < mine.count;) {
    const int64_t count = std::min(capacity_, mine.count - done);
    Gather(data::Range{mine.first + done, count});
    const LossResult result = parts_.model.Evaluate(inputs_.data(), labels_.data(), count);
    local.loss_sum += result.loss_sum;
    local.correct += result.correct;
    local.samples += count;
    done += count;
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
