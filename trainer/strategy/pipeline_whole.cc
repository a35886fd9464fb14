#include "trainer/strategy/pipeline_whole.h"

#include <algorithm>
#include <utility>

namespace lockstep::trainer::strategy {
namespace {

// Where a stage's numbers are among those of all, in canonical order.
struct Place {
  size_t offset = 0;
  size_t size = 0;
  size_t all = 0;

  std::span<const float> Of(const std::vector<float>& whole) const {
    return std::span(whole).subspan(offset, size);
  }
};

Place PlaceOf(const StagesFacts& facts, int stage, int64_t StageFacts::*size) {
  Place place;
  for (int s = 0; s < static_cast<int>(facts.size()); ++s) {
    const auto floats = static_cast<size_t>(facts[static_cast<size_t>(s)].*size);
    if (s < stage) place.offset += floats;
    if (s == stage) place.size = floats;
    place.all += floats;
  }
  return place;
}

std::vector<NamedShape> All(const StagesFacts& facts, std::vector<NamedShape> StageFacts::*variables) {
  std::vector<NamedShape> all;
  for (const StageFacts& stage : facts) {
    all.insert(all.end(), (stage.*variables).begin(), (stage.*variables).end());
  }
  return all;
}

}  // namespace

std::vector<NamedShape> AllVariables(const StagesFacts& facts) { return All(facts, &StageFacts::variables); }

std::vector<NamedShape> AllStateVariables(const StagesFacts& facts) {
  return All(facts, &StageFacts::state_variables);
}

Shares ShareOutStages(const StagesFacts& facts, const World& world, int ranks) {
  const auto stages = static_cast<int>(facts.size());
  Shares shares{.by_rank = std::vector<Share>(static_cast<size_t>(world.size)), .rank = world.rank};
  const int of_a_stage = std::clamp(ranks / stages, 1, world.size / stages);
  size_t variables = 0, state = 0;  // of the stages before
  for (int stage = 0; stage < stages; ++stage) {
    const StageFacts& mine = facts[static_cast<size_t>(stage)];
    int rank = stage;
    for (Share share : DivideEvenly(mine.variables, mine.state_variables, of_a_stage)) {
      for (size_t& i : share.variables) i += variables;
      for (size_t& i : share.state) i += state;
      shares.by_rank[static_cast<size_t>(rank)] = std::move(share);
      rank += stages;
    }
    variables += mine.variables.size();
    state += mine.state_variables.size();
  }
  return shares;
}

Share WithinStage(const StagesFacts& facts, int stage, Share share) {
  for (int before = 0; before < stage; ++before) {
    const StageFacts& theirs = facts[static_cast<size_t>(before)];
    for (size_t& i : share.variables) i -= theirs.variables.size();
    for (size_t& i : share.state) i -= theirs.state_variables.size();
  }
  return share;
}

StageState StageOf(const StagesFacts& facts, int stage, const WholeState& whole) {
  const Place floats = PlaceOf(facts, stage, &StageFacts::canonical);
  StageState mine{.parameters = floats.Of(whole.parameters),
                  .slots = {},
                  .state = PlaceOf(facts, stage, &StageFacts::state).Of(whole.state)};
  for (const std::vector<float>& slot : whole.slots) mine.slots.push_back(floats.Of(slot));
  return mine;
}

size_t WholeFloats(const StagesFacts& facts, int slots) {
  return PlaceOf(facts, 0, &StageFacts::canonical).all * static_cast<size_t>(1 + slots) +
         PlaceOf(facts, 0, &StageFacts::state).all;
}

void CollectStages(const StagesFacts& facts, const CollectOptions& options, const Model& model,
                   std::span<const float* const> flats, WholeState* to) {
  const Place floats = PlaceOf(facts, options.place.stage, &StageFacts::canonical);
  const Place state = PlaceOf(facts, options.place.stage, &StageFacts::state);
  const size_t kinds = flats.size();  // that are as long as the parameters
  const auto whole = options.segment.View<float>(0, floats.all * kinds + state.all);
  const auto meet = [&options] { options.group.Barrier("collecting the state", options.deadline()); };
  if (options.place.pipeline == 0) {
    for (size_t i = 0; i < kinds; ++i) {
      model.ExportCanonical(flats[i], whole.subspan(i * floats.all + floats.offset, floats.size));
    }
    model.ExportState(whole.subspan(kinds * floats.all + state.offset, state.size));
  }
  meet();
  const bool first = options.group.rank() == 0;
  if (first && to != nullptr) {
    const auto copy = [&whole](size_t offset, size_t size, std::vector<float>* vector) {
      const auto part = whole.subspan(offset, size);
      vector->assign(part.begin(), part.end());
    };
    copy(0, floats.all, &to->parameters);
    to->slots.resize(kinds - 1);
    for (size_t i = 1; i < kinds; ++i) copy(i * floats.all, floats.all, &to->slots[i - 1]);
    copy(kinds * floats.all, state.all, &to->state);
  }
  meet();
  if (first) options.segment.Discard({options.segment.data(), options.segment.size()});
  meet();
}

}  // namespace lockstep::trainer::strategy
