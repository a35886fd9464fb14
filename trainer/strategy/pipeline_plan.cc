#include "trainer/strategy/pipeline_plan.h"

#include <algorithm>
#include <limits>
#include <string>

#include "trainer/error.h"

namespace lockstep::trainer::strategy {

PipelinePlace PlaceInPipeline(int rank, int ranks, int stages) {
  if (ranks % stages != 0) {
    throw Unsupported("strategy: " + std::to_string(ranks) + " processes do not make pipelines of " +
                      std::to_string(stages) + " stages; a multiple of " + std::to_string(stages) +
                      " would be right");
  }
  return {.stage = rank % stages, .pipeline = rank / stages, .pipelines = ranks / stages};
}

int AutomaticStages(int ranks, int layers) { return std::max(1, std::min(ranks, layers)); }

int PassesInFlight(PipelineSchedule schedule, int stage, int stages, int micro_batches) {
  return schedule == PipelineSchedule::kGPipe ? micro_batches : std::min(stages - stage, micro_batches);
}

std::vector<PipelineWork> MakeSchedule(PipelineSchedule schedule, int stage, int stages, int micro_batches) {
  using enum PipelineWork::Kind;
  // As many forward passes as may be in flight; then each backward pass makes room for the next.
  const int ahead = PassesInFlight(schedule, stage, stages, micro_batches);
  std::vector<PipelineWork> work;
  work.reserve(2 * static_cast<size_t>(micro_batches));
  int forward = 0;
  for (int backward = 0; backward < micro_batches; ++backward) {
    for (; forward < std::min(backward + ahead, micro_batches); ++forward)
      work.push_back({kForward, forward});
    work.push_back({kBackward, backward});
  }
  return work;
}

namespace {

bool HasVariables(std::span<const LayerCost> layers) {
  return std::any_of(layers.begin(), layers.end(),
                     [](const LayerCost& layer) { return layer.has_variables; });
}

std::string CannotBeCut(size_t layers, const BalanceOptions& options) {
  return "strategy: " + std::to_string(layers) + " layers cannot be cut into " +
         std::to_string(options.stages) + " stages, each with variables" +
         (options.memory > 0 ? " and within " + std::to_string(options.memory) + " bytes of memory" : "");
}

// Σ over the layers before each.
struct Sums {
  explicit Sums(std::span<const LayerCost> layers) {
    for (const LayerCost& layer : layers) {
      seconds.push_back(seconds.back() + layer.seconds);
      bytes.push_back(bytes.back() + layer.bytes);
      in_flight.push_back(in_flight.back() + layer.bytes_in_flight);
    }
  }
  // Of layers [begin, end) as a stage.
  int64_t Bytes(size_t begin, size_t end, int stage, const BalanceOptions& options) const {
    const int passes = PassesInFlight(options.schedule, stage, options.stages, options.micro_batches);
    return bytes[end] - bytes[begin] + (in_flight[end] - in_flight[begin]) * passes;
  }

  std::vector<double> seconds{0};
  std::vector<int64_t> bytes{0}, in_flight{0};
};

}  // namespace

int64_t StageBytes(std::span<const LayerCost> layers, const LayerRange& range, int stage,
                   const BalanceOptions& options) {
  return Sums(layers).Bytes(range.first, range.last + 1, stage, options);
}

std::vector<LayerRange> BalanceStages(std::span<const LayerCost> layers, const BalanceOptions& options) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  const size_t count = layers.size();
  const auto stages = static_cast<size_t>(options.stages);
  const Sums sums(layers);
  // Of layers [begin, end) as a stage: its time, or kNone where it cannot be one.
  const auto cost = [&](size_t stage, size_t begin, size_t end) {
    if (!HasVariables(layers.subspan(begin, end - begin))) return kNone;
    const int64_t bytes = sums.Bytes(begin, end, static_cast<int>(stage), options);
    return options.memory > 0 && bytes > options.memory ? kNone : sums.seconds[end] - sums.seconds[begin];
  };
  // best[s][b]: the slowest of the stages from s on when s begins with layer b; ends[s][b]: where s then
  // ends. The shortest of equals.
  std::vector<std::vector<double>> best(stages + 1, std::vector<double>(count + 1, kNone));
  std::vector<std::vector<size_t>> ends(stages, std::vector<size_t>(count + 1, count));
  best[stages][count] = 0;
  for (size_t s = stages; s-- > 0;) {
    for (size_t begin = 0; begin < count; ++begin) {
      for (size_t end = begin + 1; end <= count; ++end) {
        const double slowest = std::max(cost(s, begin, end), best[s + 1][end]);
        if (slowest >= best[s][begin]) continue;
        best[s][begin] = slowest;
        ends[s][begin] = end;
      }
    }
  }
  if (best[0][0] == kNone) throw BadModel(CannotBeCut(count, options));
  std::vector<LayerRange> cut;
  size_t begin = 0;
  for (size_t s = 0; s < stages; ++s) {
    const size_t end = ends[s][begin];
    cut.push_back({begin, end - 1});
    begin = end;
  }
  return cut;
}

std::vector<LayerRange> FillStages(std::span<const LayerCost> layers, const BalanceOptions& options) {
  const auto left = [&](size_t from) {  // layers with variables
    return std::count_if(layers.begin() + static_cast<std::ptrdiff_t>(from), layers.end(),
                         [](const LayerCost& layer) { return layer.has_variables; });
  };
  const Sums sums(layers);
  std::vector<LayerRange> filled;
  for (size_t begin = 0; begin < layers.size(); begin = filled.back().last + 1) {
    const int stage = static_cast<int>(filled.size());
    const auto fits = [&](size_t last) {
      return sums.Bytes(begin, last + 1, stage, options) <= options.memory;
    };
    const int after = options.stages - stage - 1;  // stages
    if (after < 0 || !fits(begin)) {
      const int64_t needed = sums.Bytes(begin, begin + 1, std::min(stage, options.stages - 1), options);
      throw BadModel(CannotBeCut(layers.size(), options) + ": layer " + std::to_string(begin) +
                     ", which takes " + std::to_string(needed) + ", does not fit");
    }
    size_t last = begin;
    while (last + 1 < layers.size() && fits(last + 1) &&
           (!HasVariables(layers.subspan(begin, last + 1 - begin)) || left(last + 2) >= after)) {
      ++last;
    }
    filled.push_back({begin, last});
  }
  const bool whole = static_cast<int>(filled.size()) == options.stages &&
                     std::all_of(filled.begin(), filled.end(), [&](const LayerRange& stage) {
                       return HasVariables(layers.subspan(stage.first, stage.last - stage.first + 1));
                     });
  if (!whole) throw BadModel(CannotBeCut(layers.size(), options));
  return filled;
}

}  // namespace lockstep::trainer::strategy
