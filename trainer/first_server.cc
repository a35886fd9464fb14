#include "trainer/first_server.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "common/log.h"
#include "trainer/error.h"

namespace lockstep::trainer {

using parameter_server::Coordinator;
using parameter_server::FlatState;
using parameter_server::WorkBoard;

namespace {

// What a checkpoint of a job with parameter servers knows beside its position: which batches are done behind
// the first one that is not.
std::string Encode(const WorkBoard::State& board, int64_t batch_size) {
  nlohmann::json epochs = nlohmann::json::array();
  for (const auto& [epoch, sums] : board.epochs) {
    epochs.push_back({epoch, sums.loss_sum, sums.correct, sums.samples});
  }
  return nlohmann::json{{"batchSize", batch_size},
                        {"next", board.next},
                        {"missing", board.missing},
                        {"epochs", std::move(epochs)}}
      .dump();
}

// Nothing, for what another strategy has written, or with other batches.
std::optional<WorkBoard::State> Decode(const std::string& text, int64_t batch_size) {
  try {
    const auto json = nlohmann::json::parse(text);
    if (json.at("batchSize").get<int64_t>() != batch_size) return std::nullopt;
    WorkBoard::State board{.next = json.at("next").get<int64_t>(),
                           .missing = json.at("missing").get<std::vector<int64_t>>()};
    for (const auto& each : json.at("epochs")) {
      board.epochs[each.at(0).get<int64_t>()] = {each.at(1).get<double>(), each.at(2).get<int64_t>(),
                                                 each.at(3).get<int64_t>()};
    }
    return board;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

strategy::Shares ServedState::ShareOut(const Model& model, int /*ranks*/) const {
  return {.by_rank = strategy::DivideEvenly(model.variables(), model.state_variables(), 1)};
}

void ServedState::Export(Model& model, const strategy::Shares& /*shares*/, strategy::WholeState* to) {
  const auto size = static_cast<size_t>(model.canonical_size());
  to->parameters.resize(size);
  model.ExportCanonical(state_->parameters().data(), to->parameters);
  for (size_t i = 0; i < to->slots.size(); ++i) {
    to->slots[i].resize(size);
    model.ExportCanonical(state_->slot(i).data(), to->slots[i]);
  }
}

void ServedState::Import(Model& model, int64_t, const strategy::WholeState& from) {
  const auto state = std::make_shared<FlatState>(floats_, slots_);
  model.ImportCanonical(from.parameters, state->parameters().data());
  for (size_t i = 0; i < from.slots.size(); ++i) model.ImportCanonical(from.slots[i], state->slot(i).data());
  Set(state);
}

void ServedState::Initialize(Model& model, uint64_t seed) {
  const auto state = std::make_shared<FlatState>(floats_, slots_);
  const Buffer gradients = ZeroedHostBuffer(state->parameters().size_bytes());
  model.Bind(state->parameters(), gradients.span<float>());
  model.Initialize(seed);
  Set(state);
}

FirstServer::FirstServer(const Parts& parts)
    : parts_(parts),
      batches_per_epoch_((parts.training_samples + parts.config.batch_size - 1) / parts.config.batch_size) {}

TrainingPosition FirstServer::PositionOf(const WorkBoard::State& board) const {
  const int64_t first = board.missing.empty() ? board.next : board.missing.front();
  TrainingPosition position{.step = board.version,
                            .data = {.epoch = first / batches_per_epoch_,
                                     .offset = first % batches_per_epoch_ * parts_.config.batch_size}};
  if (const auto sums = board.epochs.find(position.data.epoch); sums != board.epochs.end()) {
    position.epoch = {sums->second.loss_sum, sums->second.correct, sums->second.samples};
  }
  position.board = Encode(board, parts_.config.batch_size);
  return position;
}

WorkBoard::State FirstServer::BoardOf(const TrainingPosition& position) const {
  WorkBoard::State board;
  if (auto noted = Decode(position.board, parts_.config.batch_size)) {
    board = std::move(*noted);
  } else if (position.data.offset % parts_.config.batch_size == 0) {
    board.next = position.data.epoch * batches_per_epoch_ + position.data.offset / parts_.config.batch_size;
    if (position.data.offset > 0) {
      board.epochs[position.data.epoch] = {position.epoch.loss, position.epoch.correct, position.data.offset};
    }
  } else {
    throw BadModel(
        "the checkpoint is from the middle of an epoch, with batches of another size; set trainer.batchSize "
        "to "
        "what it was");
  }
  board.version = position.step;
  return board;
}

WorkBoard::State FirstServer::Resume() {
  TrainingPosition position;
  std::optional<TrainingPosition> found;
  if (parts_.checkpointing != nullptr) found = parts_.checkpointing->Resume();
  if (found) {
    position = *found;
    parts_.events.Write(contract::ResumedEvent{.step = position.step});
  } else {
    parts_.state.Initialize(parts_.model, parts_.config.seed);
  }
  if (!parts_.environment.ledger_file.empty()) {
    auto ledger = checkpoint::LedgerWriter::Open(parts_.environment.ledger_file,
                                                 parts_.environment.generation, position.step);
    if (!ledger.ok()) throw BadData("ledger: " + ledger.status().message());
    ledger_ = std::make_unique<checkpoint::LedgerWriter>(std::move(*ledger));
  }
  return BoardOf(position);
}

void FirstServer::Begin(Coordinator& coordinator) {
  const int64_t before = coordinator.version();
  const WorkBoard::State board = Resume();
  if (resumed_) {
    log::Warning(coordinator.lost_server() + " was lost: the job goes on after update " +
                 std::to_string(board.version) + ", and " + std::to_string(before - board.version) +
                 " updates are lost; their batches are given out again");
  }
  resumed_ = true;
  coordinator.Begin(board, parts_.state.Take());
  last_update_ = epoch_began_ = Clock::now();
  samples_since_ = 0;
}

void FirstServer::Save(Coordinator& coordinator) {
  Coordinator::Snapshot snapshot = coordinator.TakeSnapshot();
  parts_.state.Set(std::move(snapshot.state));
  parts_.checkpointing->Save(PositionOf(snapshot.board));
  parts_.state.Take();
}

TrainingEnd FirstServer::Run(Coordinator& coordinator) {
  Begin(coordinator);
  parts_.events.Write(contract::ReadyEvent{});
  parts_.events.Write(contract::PhaseEvent{.phase = "Training"});
  while (true) {
    switch (coordinator.Await()) {
      case Coordinator::Happening::kSnapshot:
        Save(coordinator);
        break;
      case Coordinator::Happening::kServerLost:
        // What is being written is part of what the job goes back to.
        if (parts_.checkpointing != nullptr) parts_.checkpointing->Flush();
        Begin(coordinator);
        break;
      case Coordinator::Happening::kDone:
        if (parts_.checkpointing != nullptr) parts_.checkpointing->Flush();
        coordinator.End(false);
        return TrainingEnd::kDone;
      case Coordinator::Happening::kStop:
        if (parts_.checkpointing != nullptr) {
          parts_.events.Write(contract::PhaseEvent{.phase = "Checkpointing"});
          if (coordinator.WantSnapshot() && coordinator.Await() == Coordinator::Happening::kSnapshot) {
            Save(coordinator);
          }
          parts_.checkpointing->Flush();
        }
        coordinator.End(true);
        return TrainingEnd::kStopped;
    }
  }
}

void FirstServer::Tell(const Coordinator::Options::News& news) {
  const WorkBoard::Update& update = news.update;
  const Clock::time_point now = Clock::now();
  if (ledger_ != nullptr) {
    const Status noted =
        ledger_->Append(update.version, update.epoch, update.batch.first, update.batch.count);
    if (!noted.ok()) log::Error("ledger: " + noted.message());
  }
  parts_.events.WriteStep({.step = update.version,
                           .total_steps = news.total,
                           .epoch = update.epoch,
                           .samples = update.batch.count,
                           .loss = update.loss,
                           .learning_rate = parts_.optimizer.learning_rate(update.version),
                           .seconds = std::chrono::duration<double>(now - last_update_).count(),
                           .gradients_dropped = news.dropped,
                           .gradient_age = static_cast<double>(update.age)});
  last_update_ = now;
  samples_since_ += update.batch.count;
  if (update.ends_epoch) TellEpoch(update);
}

void FirstServer::TellEpoch(const WorkBoard::Update& update) {
  const Clock::time_point now = Clock::now();
  const strategy::Totals& sums = update.epoch_totals;
  const auto samples = static_cast<double>(sums.samples);
  std::printf("epoch %ld/%ld: loss %.4f", static_cast<long>(update.epoch + 1),
              static_cast<long>(parts_.config.epochs), sums.loss_sum / samples);
  if (!parts_.config.model.metrics.empty()) {
    std::printf(", accuracy %.4f", static_cast<double>(sums.correct) / samples);
  }
  const double seconds = std::chrono::duration<double>(now - epoch_began_).count();
  if (seconds > 0) std::printf(", %.0f samples/s", static_cast<double>(samples_since_) / seconds);
  std::printf("\n");
  std::fflush(stdout);
  epoch_began_ = now;
  samples_since_ = 0;
}

}  // namespace lockstep::trainer
