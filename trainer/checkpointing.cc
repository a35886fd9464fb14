#include "trainer/checkpointing.h"

#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "common/log.h"
#include "trainer/error.h"

namespace lockstep::trainer {

namespace {

constexpr char kResumeKey[] = "checkpoint/resume";  // path of the checkpoint that all resume from, or nothing

std::string EncodeSums(const EpochSums& sums) {
  return nlohmann::json{
      {"epochLoss", sums.loss}, {"epochCorrect", sums.correct}, {"epochSamples", sums.samples}}
      .dump();
}

EpochSums DecodeSums(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return {};
  return {.loss = json.value("epochLoss", 0.0),
          .correct = json.value("epochCorrect", int64_t{0}),
          .samples = json.value("epochSamples", int64_t{0})};
}

std::string Join(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += (all.empty() ? "" : "; ") + line;
  return all;
}

}  // namespace

Checkpointing::Checkpointing(Options options, contract::Store* store, Model& model,
                             strategy::Strategy& strategy, EventWriter& events)
    : options_(std::move(options)),
      store_(store),
      model_(model),
      strategy_(strategy),
      events_(events),
      directory_({.path = options_.config.directory,
                  .run = options_.run,
                  .generation = options_.generation,
                  .keep = options_.config.keep}) {}

Checkpointing::~Checkpointing() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::optional<TrainingPosition> Checkpointing::Resume() {
  const auto deadline = std::chrono::steady_clock::now() + options_.timeout;
  std::optional<checkpoint::Directory::Loaded> loaded;
  if (options_.world.rank == 0) {
    if (const Status claimed = directory_.Claim(); claimed.code() == StatusCode::kAborted) {
      throw CollectiveLost("checkpoint folder: " + claimed.message());
    } else if (!claimed.ok() && !claimed.retryable() && claimed.code() != StatusCode::kResourceExhausted) {
      throw BadData("trainer.checkpoint.directory: " + claimed.message());
    }
    std::vector<std::string> warnings;
    loaded = directory_.LoadNewest(options_.signature, &warnings);
    if (!warnings.empty()) log::Warning("checkpoint: " + Join(warnings));
    if (store_ != nullptr) {
      const Status told = store_->Set(kResumeKey, loaded ? loaded->path : "", deadline);
      if (!told.ok()) throw RendezvousFailed("telling the checkpoint to resume from: " + told.message());
    }
    thread_ = std::thread([this] { WriteLoop(); });
  } else {
    const Result<std::string> path = store_->Get(kResumeKey, deadline);
    if (!path.ok()) throw RendezvousFailed("asking rank 0 for the checkpoint: " + path.status().message());
    if (!path->empty()) {
      loaded = {.snapshot = checkpoint::Directory::Load(*path, options_.signature), .path = *path};
    }
  }
  if (!loaded) return std::nullopt;

  const checkpoint::Snapshot& snapshot = loaded->snapshot;
  Restore(snapshot);
  if (options_.world.rank == 0) {
    log::Info("resumed from " + loaded->path + ", step " + std::to_string(snapshot.step));
  }
  return TrainingPosition{.step = snapshot.step,
                          .data = {.epoch = snapshot.epoch, .offset = snapshot.offset},
                          .epoch = DecodeSums(snapshot.metadata)};
}

void Checkpointing::Restore(const checkpoint::Snapshot& snapshot) {
  strategy_.Restore(snapshot.step, [&](std::span<float> parameters, std::span<const std::span<float>> slots) {
    model_.ImportCanonical(snapshot.parameters, parameters.data());
    for (size_t i = 0; i < slots.size(); ++i) model_.ImportCanonical(snapshot.slots[i], slots[i].data());
  });
}

bool Checkpointing::Due(int64_t step, bool end_of_epoch) const {
  return options_.config.every > 0 ? step % options_.config.every == 0 : end_of_epoch;
}

void Checkpointing::Save(const TrainingPosition& position) {
  if (options_.world.rank != 0) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !pending_; });
  ThrowIfFenced();
  snapshot_.signature = options_.signature;
  snapshot_.step = position.step;
  snapshot_.epoch = position.data.epoch;
  snapshot_.offset = position.data.offset;
  snapshot_.generation = options_.generation;
  snapshot_.metadata = EncodeSums(position.epoch);
  const auto size = static_cast<size_t>(model_.canonical_size());
  snapshot_.parameters.resize(size);
  model_.ExportCanonical(strategy_.parameters().data(), snapshot_.parameters);
  snapshot_.slots.resize(options_.signature.slots.size());
  for (size_t i = 0; i < snapshot_.slots.size(); ++i) {
    snapshot_.slots[i].resize(size);
    model_.ExportCanonical(strategy_.slot(static_cast<int>(i)).data(), snapshot_.slots[i]);
  }
  pending_ = true;
  changed_.notify_all();
}

void Checkpointing::Flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !pending_; });
  ThrowIfFenced();
}

void Checkpointing::ThrowIfFenced() {
  if (!fenced_.empty()) throw CollectiveLost("checkpoint folder: " + fenced_);
}

void Checkpointing::WriteLoop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return pending_ || ending_; });
    if (!pending_) return;
    // While it is pending nobody else touches the snapshot.
    lock.unlock();
    const auto start = std::chrono::steady_clock::now();
    const Result<std::string> saved = directory_.Save(snapshot_);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    Report(saved, snapshot_.step, took.count());
    lock.lock();
    if (saved.status().code() == StatusCode::kAborted) fenced_ = saved.status().message();
    pending_ = false;
    changed_.notify_all();
  }
}

void Checkpointing::Report(const Result<std::string>& saved, int64_t step, double seconds) {
  if (!saved.ok())
    log::Warning("checkpoint of step " + std::to_string(step) + " not written: " + saved.status().message() +
                 "; training goes on");
  events_.Write(contract::CheckpointEvent{.step = step,
                                          .path = saved.ok() ? *saved : options_.config.directory,
                                          .seconds = seconds,
                                          .ok = saved.ok(),
                                          .message = saved.ok() ? "" : saved.status().message()});
}

}  // namespace lockstep::trainer
