#include <algorithm>
#include <array>
#include <utility>

#include "trainer/strategy/meeting.h"
#include "trainer/strategy/pipeline.h"
#include "trainer/strategy/pipeline_whole.h"

// What a pipeline's ranks have of the whole, put together and taken apart; and what is left of it when some
// are lost.
namespace lockstep::trainer::strategy {

std::vector<NamedShape> Pipeline::Variables(const Model&) const { return AllVariables(facts_); }

std::vector<NamedShape> Pipeline::StateVariables(const Model&) const { return AllStateVariables(facts_); }

Shares Pipeline::ShareOut(const Model& model, int ranks) const {
  return ranks <= 1 ? Strategy::ShareOut(model, 1) : ShareOutStages(facts_, options_.world, ranks);
}

void Pipeline::Export(Model& model, const Shares& shares, WholeState* to) {
  if (shares.by_rank.size() > 1) {
    if (to == nullptr) return;
    return Strategy::Export(model, {.by_rank = {WithinStage(facts_, place_.stage, shares.mine())}}, to);
  }
  std::vector<const float*> flats{mine().parameters};
  flats.insert(flats.end(), mine().slots.begin(), mine().slots.end());
  CollectStages(
      facts_,
      {.group = *group_, .segment = exported_, .place = place_, .deadline = [this] { return deadline(); }},
      model, flats, to);
}

void Pipeline::Import(Model& model, int64_t step, const WholeState& from) {
  const StageState mine = StageOf(facts_, place_.stage, from);
  model.ImportState(mine.state);
  KeepState(turn_);
  Restore(step, [&](std::span<float> parameters, std::span<const std::span<float>> slots) {
    model.ImportCanonical(mine.parameters, parameters.data());
    for (size_t i = 0; i < slots.size(); ++i) model.ImportCanonical(mine.slots[i], slots[i].data());
  });
}

void Pipeline::Restore(int64_t step, const Fill& fill) {
  group_->Barrier("restoring", deadline());
  if (leads()) {
    try {
      std::vector<std::span<float>> slots;
      for (float* const slot : mine().slots) slots.emplace_back(slot, total());
      fill({mine().parameters, total()}, slots);
    } catch (...) {
      Abort();
      throw;
    }
  }
  group_->Barrier("restoring", deadline());
  model_->ParametersChanged(0, model_->layout().total);
  step_ = step;
}

// (Where a stage has state there is one pipeline.)
void Pipeline::KeepState(uint64_t turns) {
  const std::span<float> state = mine().states[turns % 2];
  if (!state.empty()) model_->ExportState(state);
}

// Of the steps that this rank has done, and the one that it is in if all have reported it, the last may not
// be updated everywhere. Who has its gradients for a step is at updating it, or will find that the group has
// failed before it begins.
std::vector<Committed> Pipeline::TakeCommitted(Model& /*model*/) {
  Abort();
  const auto updates = [this](int r) { return members_[r].gradients.load() > members_[r].updated.load(); };
  group_->Rest(updates, std::chrono::steady_clock::now() + kRest);
  Committed committed;
  if (in_step_ && AllHaveReported(step_report_)) {
    const Report totals = Reported(step_report_);
    squared_norm_ = totals[5];
    committed.finished = Finished(totals);
  }
  committed.step = step_;
  committed.state.slots.resize(mine().slots.size());
  for (int stage = 0; stage < stages(); ++stage) AppendCommitted(stage, &committed.state);
  return {std::move(committed)};
}

// In memory of its own: other ranks may do the same.
void Pipeline::AppendCommitted(int stage, WholeState* to) {
  const StageFacts& facts = facts_[static_cast<size_t>(stage)];
  const StageMemory& memory = memory_[static_cast<size_t>(stage)];
  const auto floats = static_cast<size_t>(facts.parameters);
  std::vector<const float*> shared{memory.parameters};
  shared.insert(shared.end(), memory.slots.begin(), memory.slots.end());
  std::vector<Buffer> own;
  for (const float* const buffer : shared) {
    std::copy_n(buffer, floats, own.emplace_back(HostAllocator(), floats * sizeof(float)).as<float>());
  }
  UpdateBuffers buffers{.parameters = own[0].as<float>(), .gradients = nullptr, .slots = {}};
  for (size_t i = 1; i < own.size(); ++i) buffers.slots[i - 1] = own[i].as<float>();

  for (int pipeline = 0; turn_ > 0 && pipeline < place_.pipelines; ++pipeline) {
    buffers.gradients = memory.sums[static_cast<size_t>(pipeline)];
    const auto rank = static_cast<size_t>(RankOf(stage, pipeline));
    for (size_t piece = first_piece_[rank]; piece < first_piece_[rank + 1]; ++piece) {
      const Journal::Found found = journal_.Find(piece, turn_ - 1);
      if (found.state == Journal::State::kDone) continue;
      const collectives::Range range = journal_.pieces()[piece];
      for (size_t i = 0; i < own.size() && found.kept != nullptr; ++i) {
        std::copy_n(found.kept + i * range.size(), range.size(), own[i].as<float>() + range.begin);
      }
      Apply(step_, facts, buffers, range);
    }
  }

  const auto append = [&facts](const Buffer& flat, std::vector<float>* canonical) {
    for (const auto& [begin, size] : facts.order) {
      const float* const run = flat.as<float>() + begin;
      canonical->insert(canonical->end(), run, run + size);
    }
  };
  append(own[0], &to->parameters);
  for (size_t i = 1; i < own.size(); ++i) append(own[i], &to->slots[i - 1]);
  const std::span<const float> state = memory.states[turn_ % 2];
  to->state.insert(to->state.end(), state.begin(), state.end());
}

void Pipeline::Broadcast(std::span<std::byte> data, int root) {
  if (data.empty()) return;
  const auto nothing = [](std::span<std::byte>) {};
  BroadcastOnMachine(*group_, broadcasts_++, data, options_.world.rank == root, nothing, deadline());
}

}  // namespace lockstep::trainer::strategy
