#include "trainer/checkpointing.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <utility>

#include "common/log.h"
#include "trainer/checkpoint/parts.h"
#include "trainer/error.h"

namespace lockstep::trainer {

namespace {

constexpr char kResumeKey[] =
    "checkpoint/resume";                         // TERM PATH: the claim, and what all resume from or nothing
constexpr char kPartKey[] = "checkpoint/part/";  // + rank: what became of its latest part, see EncodePart

// How often rank 0 asks whether another rank's part is there: far below what a part takes.
constexpr std::chrono::milliseconds kAskAgain{5};
constexpr int kWriterNiceness = 10;
// Short, for who waits for rank 0 to end.
constexpr std::chrono::milliseconds kOneGet{200};

std::string EncodeSums(const TrainingPosition& position) {
  const EpochSums& sums = position.epoch;
  nlohmann::json json{{"epochLoss", sums.loss},
                      {"epochCorrect", sums.correct},
                      {"epochSamples", sums.samples},
                      {"lossAverage", position.loss_average}};
  if (!position.board.empty()) json["board"] = position.board;
  return json.dump();
}

// What the metadata have of a position.
void DecodeSums(const std::string& text, TrainingPosition* position) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return;
  // (What is not finite is null in JSON. Checkpoints of older versions have no average; it is then not
  // known.)
  const auto number = [&](const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_number() ? found->get<double>() : NAN;
  };
  position->epoch = {.loss = number("epochLoss"),
                     .correct = json.value("epochCorrect", int64_t{0}),
                     .samples = json.value("epochSamples", int64_t{0})};
  position->loss_average = number("lossAverage");
  position->board = json.value("board", "");
}

// STEP BYTES CRC, or STEP and why it was not written.
std::string EncodePart(int64_t step, const Result<checkpoint::Seal>& seal) {
  std::string text = std::to_string(step) + " ";
  if (!seal.ok()) return text + "! " + seal.status().message();
  return text + std::to_string(seal->bytes) + " " + std::to_string(seal->crc);
}

// None when it is of another step.
std::optional<Result<checkpoint::Seal>> DecodePart(const std::string& text, int64_t step) {
  std::istringstream in(text);
  int64_t of_step = -1;
  if (!(in >> of_step) || of_step != step) return std::nullopt;
  checkpoint::Seal seal;
  if (in >> seal.bytes >> seal.crc) return seal;
  const size_t why = text.find("! ");
  return Unavailable(why == std::string::npos ? "it says: " + text : text.substr(why + 2));
}

std::string Join(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += (all.empty() ? "" : "; ") + line;
  return all;
}

bool IsFence(const Status& status) {
  return status.code() == StatusCode::kAborted || status.code() == StatusCode::kFailedPrecondition;
}

[[noreturn]] void ThrowFenced(const Status& why) {
  const std::string message = "checkpoint folder: " + why.message();
  if (why.code() == StatusCode::kFailedPrecondition) throw Superseded(message);
  throw CollectiveLost(message);
}

}  // namespace

Checkpointing::Checkpointing(Options options, contract::Store* store, Model& model,
                             strategy::TrainingState& state, EventWriter& events)
    : options_(std::move(options)),
      store_(store),
      model_(model),
      state_(state),
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

// Rank 0's claim to the folder, which all hear of, with the checkpoint that it finds.
std::optional<checkpoint::Directory::Loaded> Checkpointing::Begin(bool loads) {
  const auto deadline = std::chrono::steady_clock::now() + options_.timeout;
  std::optional<checkpoint::Directory::Loaded> loaded;
  if (options_.world.rank == 0) {
    if (const Status claimed = directory_.Claim(); IsFence(claimed)) {
      ThrowFenced(claimed);
    } else if (!claimed.ok() && !claimed.retryable() && claimed.code() != StatusCode::kResourceExhausted) {
      throw BadData("trainer.checkpoint.directory: " + claimed.message());
    }
    std::vector<std::string> warnings;
    if (loads) loaded = directory_.LoadNewest(options_.signature, &warnings);
    if (!warnings.empty()) log::Warning("checkpoint: " + Join(warnings));
    if (store_ != nullptr) {
      const std::string what =
          std::to_string(directory_.term()) + " " + (loaded ? loaded->path : std::string());
      const Status told = store_->Set(kResumeKey, what, deadline);
      if (!told.ok()) throw RendezvousFailed("telling the checkpoint to resume from: " + told.message());
    }
    ShareOut(directory_.term());
  } else {
    const Result<std::string> told = store_->Get(kResumeKey, deadline);
    if (!told.ok()) throw RendezvousFailed("asking rank 0 for the checkpoint: " + told.status().message());
    const std::string path = told->substr(told->find(' ') + 1);
    if (!path.empty()) {
      loaded = {.snapshot = checkpoint::Directory::Load(path, options_.signature), .path = path};
    }
    ShareOut(std::strtoll(told->c_str(), nullptr, 10));
  }
  return loaded;
}

void Checkpointing::TakeOver() { Begin(false); }

std::optional<TrainingPosition> Checkpointing::Resume() {
  std::optional<checkpoint::Directory::Loaded> loaded = Begin(true);
  if (!loaded) return std::nullopt;

  checkpoint::Snapshot& snapshot = loaded->snapshot;
  state_.Import(model_, snapshot.step,
                {.parameters = std::move(snapshot.parameters),
                 .slots = std::move(snapshot.slots),
                 .state = std::move(snapshot.state)});
  if (options_.world.rank == 0) {
    log::Info("resumed from " + loaded->path + ", step " + std::to_string(snapshot.step));
  }
  TrainingPosition position{.step = snapshot.step,
                            .data = {.epoch = snapshot.epoch, .offset = snapshot.offset}};
  DecodeSums(snapshot.metadata, &position);
  return position;
}

void Checkpointing::ShareOut(int64_t term) {
  const checkpoint::Signature& signature = options_.signature;
  const int64_t values = 1 + static_cast<int64_t>(signature.slots.size());
  const int64_t bytes = signature.elements() * values * static_cast<int64_t>(sizeof(float));
  // (Without a claim nobody knows yet what the parts would be called.)
  const int64_t parts =
      term == 0 ? 1 : std::clamp<int64_t>(bytes / options_.part_bytes, 1, options_.world.size);
  shares_ = state_.ShareOut(model_, static_cast<int>(parts));
  bringers_ = shares_.ranks();
  term_ = term;
  if (shares_.brings() && !thread_.joinable()) thread_ = std::thread([this] { WriteLoop(); });
}

bool Checkpointing::Due(int64_t step, bool end_of_epoch) const {
  return options_.config.every > 0 ? step % options_.config.every == 0 : end_of_epoch;
}

void Checkpointing::Save(const TrainingPosition& position) {
  const auto start = std::chrono::steady_clock::now();
  if (ReplicaSum* const replicas = state_.replica_sum(); replicas != nullptr && model_.state_differs()) {
    model_.AverageState(*replicas, options_.world.size);
  }
  if (!shares_.brings()) {
    state_.Export(model_, shares_, nullptr);
    return;
  }
  std::unique_lock lock(mutex_);
  AwaitWritten(lock);
  const strategy::Share& mine = shares_.mine();
  snapshot_.signature = checkpoint::SignatureOf(options_.signature, mine.variables, mine.state);
  snapshot_.step = position.step;
  snapshot_.epoch = position.data.epoch;
  snapshot_.offset = position.data.offset;
  snapshot_.generation = options_.generation;
  snapshot_.metadata = EncodeSums(position);
  // (Into the memory of the one before.)
  strategy::WholeState whole{.parameters = std::move(snapshot_.parameters),
                             .slots = std::move(snapshot_.slots),
                             .state = std::move(snapshot_.state)};
  whole.slots.resize(options_.signature.slots.size());
  state_.Export(model_, shares_, &whole);
  snapshot_.parameters = std::move(whole.parameters);
  snapshot_.slots = std::move(whole.slots);
  snapshot_.state = std::move(whole.state);
  blocked_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  pending_ = true;
  changed_.notify_all();
}

void Checkpointing::Flush() {
  std::unique_lock lock(mutex_);
  AwaitWritten(lock);
}

void Checkpointing::Abort() noexcept {
  {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
  }
  changed_.notify_all();
}

void Checkpointing::AwaitWritten(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [this] { return !pending_ || aborted_; });
  if (aborted_) throw CollectiveLost("others were lost while a checkpoint was to be written");
  ThrowIfFenced();
}

void Checkpointing::ThrowIfFenced() {
  if (!fenced_.ok()) ThrowFenced(fenced_);
}

void Checkpointing::WriteLoop() {
  // (Of this thread alone; what computes goes first. That it cannot be had does no harm.)
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kWriterNiceness);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return pending_ || ending_; });
    if (!pending_) return;
    // While it is pending nobody else touches the snapshot.
    lock.unlock();
    const auto start = std::chrono::steady_clock::now();
    const Result<std::string> saved = Write();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (options_.world.rank == 0) Report(saved, snapshot_.step, took.count());
    lock.lock();
    if (IsFence(saved.status())) fenced_ = saved.status();
    pending_ = false;
    changed_.notify_all();
  }
}

Result<std::string> Checkpointing::Write() {
  return bringers_.size() == 1 ? directory_.Save(snapshot_) : WriteInParts();
}

Result<std::string> Checkpointing::WriteInParts() {
  const auto number = std::find(bringers_.begin(), bringers_.end(), options_.world.rank) - bringers_.begin();
  const checkpoint::PartNumber part{.number = number, .count = static_cast<int64_t>(bringers_.size())};
  const Result<checkpoint::Seal> mine = directory_.SavePart(term_, part, snapshot_);
  if (options_.world.rank != 0) {
    const Status told =
        store_->Set(kPartKey + std::to_string(options_.world.rank), EncodePart(snapshot_.step, mine),
                    std::chrono::steady_clock::now() + options_.timeout);
    if (!told.ok()) log::Warning("checkpoint: telling rank 0 of a part: " + told.message());
    return std::string();
  }
  LOCKSTEP_RETURN_IF_ERROR(mine.status());
  checkpoint::Snapshot index{.signature = options_.signature,
                             .step = snapshot_.step,
                             .epoch = snapshot_.epoch,
                             .offset = snapshot_.offset,
                             .generation = snapshot_.generation,
                             .metadata = snapshot_.metadata,
                             .parts = {*mine}};
  for (const int rank : bringers_) {
    if (rank == 0) continue;
    const Result<checkpoint::Seal> seal = AwaitPart(rank, snapshot_.step);
    if (!seal.ok()) {
      return Status(seal.status().code(),
                    "the part of rank " + std::to_string(rank) + ": " + seal.status().message());
    }
    index.parts.push_back(*seal);
  }
  Result<std::string> saved = directory_.Save(index);
  if (saved.status().code() == StatusCode::kNotFound) {
    return NotFound(saved.status().message() + " (is it the same folder on all machines?)");
  }
  return saved;
}

Result<checkpoint::Seal> Checkpointing::AwaitPart(int rank, int64_t step) {
  const auto deadline = std::chrono::steady_clock::now() + options_.timeout;
  while (std::chrono::steady_clock::now() < deadline) {
    const Result<std::string> told =
        store_->Get(kPartKey + std::to_string(rank), std::chrono::steady_clock::now() + kOneGet);
    if (told.ok()) {
      if (const auto part = DecodePart(*told, step)) return *part;
    } else if (told.status().code() != StatusCode::kDeadlineExceeded) {
      return told.status();
    }
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, kAskAgain, [this] { return ending_ || aborted_; })) {
      return Unavailable("the training ended before it was there");
    }
  }
  return DeadlineExceeded("not there after " + std::to_string(options_.timeout.count() / 1000) + " s");
}

void Checkpointing::Report(const Result<std::string>& saved, int64_t step, double seconds) {
  if (!saved.ok())
    log::Warning("checkpoint of step " + std::to_string(step) + " not written: " + saved.status().message() +
                 "; training goes on");
  events_.Write(contract::CheckpointEvent{.step = step,
                                          .path = saved.ok() ? *saved : options_.config.directory,
                                          .seconds = seconds,
                                          .blocking_seconds = blocked_,
                                          .ok = saved.ok(),
                                          .message = saved.ok() ? "" : saved.status().message()});
}

}  // namespace lockstep::trainer
