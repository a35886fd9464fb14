#include "trainer/strategy/pipeline_facts.h"

#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "trainer/error.h"
#include "trainer/strategy/fingerprint.h"

namespace lockstep::trainer::strategy {
namespace {

using Json = nlohmann::json;

Json ShapesToJson(const std::vector<NamedShape>& variables) {
  Json all = Json::array();
  for (const NamedShape& variable : variables) all.push_back({variable.name, variable.shape.dims()});
  return all;
}

std::vector<NamedShape> ShapesFromJson(const Json& json) {
  std::vector<NamedShape> all;
  for (const Json& each : json) {
    all.push_back({.name = each[0].get<std::string>(), .shape = Shape(each[1].get<std::vector<int64_t>>())});
  }
  return all;
}

Json RangesToJson(const std::vector<UpdateRange>& ranges) {
  Json all = Json::array();
  for (const UpdateRange& range : ranges) all.push_back({range.begin, range.end, range.l2, range.decays});
  return all;
}

std::vector<UpdateRange> RangesFromJson(const Json& json) {
  std::vector<UpdateRange> all;
  for (const Json& each : json) {
    all.push_back({.begin = each[0], .end = each[1], .l2 = each[2], .decays = each[3]});
  }
  return all;
}

// How the model exports a buffer in which each float has its own number for its bits.
Json OrderToJson(const Model& model) {
  const Buffer flat = ZeroedHostBuffer(static_cast<size_t>(model.layout().total) * sizeof(float));
  const std::span<float> numbers = flat.span<float>();
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = std::bit_cast<float>(static_cast<uint32_t>(i));
  std::vector<float> canonical(static_cast<size_t>(model.canonical_size()));
  model.ExportCanonical(numbers.data(), canonical);
  Json runs = Json::array();
  uint32_t begin = 0, size = 0;
  for (const float each : canonical) {
    const auto number = std::bit_cast<uint32_t>(each);
    if (size > 0 && number == begin + size) {
      ++size;
      continue;
    }
    if (size > 0) runs.push_back({begin, size});
    begin = number;
    size = 1;
  }
  if (size > 0) runs.push_back({begin, size});
  return runs;
}

std::vector<StageFacts::Run> OrderFromJson(const Json& json) {
  std::vector<StageFacts::Run> all;
  for (const Json& each : json) all.push_back({.begin = each[0], .size = each[1]});
  return all;
}

// The same on all ranks.
std::string PlanText(const PipelineOptions& plan, uint64_t seed) {
  std::string text = std::to_string(plan.MicroBatches()) + " micro-batches, schedule " +
                     std::to_string(static_cast<int>(plan.schedule)) + ", seed " + std::to_string(seed) + ";";
  for (const LayerRange& stage : plan.stages) {
    text += " " + std::to_string(stage.first) + "-" + std::to_string(stage.last);
  }
  return text;
}

// Why no pipeline can train this stage; empty: it can.
std::string Refusal(const Model& model, int pipelines, bool on_gpu) {
  if (model.layout().total == 0) return "has no variables to train; join it to its neighbour";
  if (model.layout().total > std::numeric_limits<uint32_t>::max()) {
    return "has more than 4294967295 parameters; more stages would be right";
  }
  if (on_gpu && !model.recordable()) {
    return "has a layer that computes on another device than the stage's GPU, for which the passes would "
           "wait; "
           "leave out its placement";
  }
  if (model.sums_over_replicas()) {
    return "has synchronised batch normalization, and a pipeline sees a micro-batch at a time; without "
           "synchronisation its statistics are those of a micro-batch";
  }
  if (model.state_differs() && pipelines > 1) {
    return "keeps moving statistics, which several pipelines side by side would have of their own; as many "
           "processes as stages would be right";
  }
  return "";
}

Json Told(const Options& options, const PipelinePlace& place, const Model& model, int slots, uint64_t seed) {
  const auto type = [](DataType each) { return static_cast<int>(each); };
  const bool first = model.reads_inputs();
  const std::string refusal = Refusal(model, place.pipelines, options.device != nullptr);
  return {{"plan", PlanText(options.pipeline, seed)},
          {"layout", Fingerprint(model.layout(), slots)},
          {"refusal", refusal},
          {"parameters", model.layout().total},
          {"canonical", model.canonical_size()},
          {"state", model.state_size()},
          // Of its inputs, and what the stage before is to hand over.
          {"inputs", {first ? 0 : model.features(), type(model.input_type()), type(model.input_type())}},
          {"outputs", {model.outputs(), type(model.output_type()), type(model.output_gradient_type())}},
          {"outputBytes", model.outputs() * static_cast<int64_t>(SizeOf(model.output_type()))},
          {"gradientBytes", model.outputs() * static_cast<int64_t>(SizeOf(model.output_gradient_type()))},
          {"variables", ShapesToJson(model.variables())},
          {"stateVariables", ShapesToJson(model.state_variables())},
          {"ranges", RangesToJson(model.layout().update_ranges())},
          {"order", refusal.empty() ? OrderToJson(model) : Json::array()}};
}

StageFacts Facts(const Json& told) {
  return {.parameters = told["parameters"],
          .canonical = told["canonical"],
          .state = told["state"],
          .output_bytes = told["outputBytes"],
          .gradient_bytes = told["gradientBytes"],
          .variables = ShapesFromJson(told["variables"]),
          .state_variables = ShapesFromJson(told["stateVariables"]),
          .ranges = RangesFromJson(told["ranges"]),
          .order = OrderFromJson(told["order"])};
}

// Of what each rank has told, by rank.
void Compare(const std::vector<Json>& all, int stages) {
  const auto differ = [](size_t a, size_t b, const std::string& in) {
    throw BadModel("ranks " + std::to_string(a) + " and " + std::to_string(b) + " differ in " + in);
  };
  const auto period = static_cast<size_t>(stages);
  for (size_t r = 0; r < all.size(); ++r) {
    const std::string refusal = all[r]["refusal"];
    if (!refusal.empty()) {
      throw Unsupported("strategy: Pipeline: stage " + std::to_string(r % period) + " " + refusal);
    }
    if (all[r]["plan"] != all[0]["plan"]) differ(0, r, "the pipeline's stages, its schedule or the seed");
    if (all[r]["layout"] != all[r % period]["layout"]) {
      differ(r % period, r,
             "the parameters of stage " + std::to_string(r % period) +
                 "; all need the same model and optimizer, and the same kind of processor");
    }
    if (r % period > 0 && all[r]["inputs"] != all[r - 1]["outputs"]) {
      differ(r - 1, r, "what the one hands over and the other takes; all need the same model");
    }
  }
}

}  // namespace

std::vector<StageFacts> ExchangeFacts(const Options& options, const Model& model, int slots, uint64_t seed) {
  const World& world = options.world;
  const int stages = options.pipeline.count();
  const auto deadline = std::chrono::steady_clock::now() + options.setup_timeout;
  const auto check = [](const Status& status) {
    if (!status.ok()) throw RendezvousFailed("comparing the stages: " + status.message());
  };
  std::vector<std::string> keys;
  for (int r = 0; r < world.size; ++r) keys.push_back("stage/" + std::to_string(r));
  const PipelinePlace place = PlaceInPipeline(world.rank, world.size, stages);
  const std::string mine = Told(options, place, model, slots, seed).dump();
  check(options.store->Set(keys[static_cast<size_t>(world.rank)], mine, deadline));
  check(options.store->Wait(keys, deadline));
  std::vector<Json> all;
  for (const std::string& key : keys) {
    const Result<std::string> told = options.store->Get(key, deadline);
    check(told.status());
    all.push_back(Json::parse(*told));
  }
  Compare(all, stages);
  std::vector<StageFacts> facts;
  for (int stage = 0; stage < stages; ++stage) facts.push_back(Facts(all[static_cast<size_t>(stage)]));
  return facts;
}

}  // namespace lockstep::trainer::strategy
