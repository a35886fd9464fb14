#include "trainer/checkpoint/signature.h"

#include <nlohmann/json.hpp>

namespace lockstep::trainer::checkpoint {
namespace {

using nlohmann::json;

constexpr int64_t kMostElements = int64_t{1} << 40;

std::string ShapeText(const Variable& variable) {
  std::string text = "[";
  for (const int64_t extent : variable.shape) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + "]";
}

std::string OptimizerText(const Signature& signature) {
  std::string text = signature.optimizer + " (";
  for (const std::string& slot : signature.slots) text += (text.ends_with('(') ? "" : ", ") + slot;
  return text + ")";
}

int64_t SumOfElements(const std::vector<Variable>& variables) {
  int64_t sum = 0;
  for (const Variable& variable : variables) sum += variable.elements();
  return sum;
}

// `what`: "variables".
std::string DifferenceOf(const std::vector<Variable>& saved, const std::vector<Variable>& job,
                         const std::string& what) {
  if (saved.size() != job.size()) {
    return "it has " + std::to_string(saved.size()) + " " + what + ", the job's model " +
           std::to_string(job.size());
  }
  for (size_t i = 0; i < job.size(); ++i) {
    const Variable &theirs = saved[i], &ours = job[i];
    if (theirs == ours) continue;
    return "it has the variable " + theirs.name + " " + ShapeText(theirs) + " where the job's model has " +
           ours.name + " " + ShapeText(ours);
  }
  return {};
}

json Encode(const std::vector<Variable>& variables) {
  json encoded = json::array();
  for (const Variable& variable : variables) {
    encoded.push_back({{"name", variable.name}, {"shape", variable.shape}});
  }
  return encoded;
}

// Adds to `total` how many elements they have.
Result<std::vector<Variable>> Parse(const json& encoded, int64_t* total) {
  std::vector<Variable> variables;
  for (const json& each : encoded) {
    Variable variable{each.at("name").get<std::string>(), each.at("shape").get<std::vector<int64_t>>()};
    int64_t elements = 1;
    for (const int64_t extent : variable.shape) {
      if (extent < 1 || __builtin_mul_overflow(elements, extent, &elements) || elements > kMostElements) {
        return InvalidArgument("the shape of " + variable.name + " is impossible");
      }
    }
    *total += elements;
    if (*total > kMostElements) return InvalidArgument("its variables are impossibly large");
    variables.push_back(std::move(variable));
  }
  return variables;
}

}  // namespace

int64_t Variable::elements() const {
  int64_t product = 1;
  for (const int64_t extent : shape) product *= extent;
  return product;
}

int64_t Signature::elements() const { return SumOfElements(variables); }
int64_t Signature::state_elements() const { return SumOfElements(state); }

std::string Difference(const Signature& saved, const Signature& job) {
  if (std::string text = DifferenceOf(saved.variables, job.variables, "variables"); !text.empty())
    return text;
  if (std::string text = DifferenceOf(saved.state, job.state, "pieces of state"); !text.empty()) return text;
  if (saved.optimizer != job.optimizer || saved.slots != job.slots) {
    return "its optimizer is " + OptimizerText(saved) + ", the job's " + OptimizerText(job);
  }
  if (saved.seed != job.seed) {
    return "its seed is " + std::to_string(saved.seed) + ", the job's " + std::to_string(job.seed);
  }
  if (saved.training_samples != job.training_samples) {
    return "it was trained on " + std::to_string(saved.training_samples) + " samples, the job has " +
           std::to_string(job.training_samples);
  }
  return {};
}

std::string EncodeSignature(const Signature& signature) {
  json all = {{"variables", Encode(signature.variables)},
              {"optimizer", signature.optimizer},
              {"slots", signature.slots},
              {"precision", signature.precision},
              {"seed", signature.seed},
              {"trainingSamples", signature.training_samples}};
  if (!signature.state.empty()) all["state"] = Encode(signature.state);
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<Signature> ParseSignature(std::string_view text) {
  try {
    const json all = json::parse(text);
    Signature signature;
    int64_t total = 0;
    Result<std::vector<Variable>> variables = Parse(all.at("variables"), &total);
    if (!variables.ok()) return variables.status();
    signature.variables = std::move(*variables);
    if (all.contains("state")) {
      Result<std::vector<Variable>> state = Parse(all.at("state"), &total);
      if (!state.ok()) return state.status();
      signature.state = std::move(*state);
    }
    signature.optimizer = all.at("optimizer").get<std::string>();
    signature.slots = all.at("slots").get<std::vector<std::string>>();
    signature.precision = all.at("precision").get<std::string>();
    signature.seed = all.at("seed").get<uint64_t>();
    signature.training_samples = all.at("trainingSamples").get<int64_t>();
    return signature;
  } catch (const json::exception& error) {
    return InvalidArgument(error.what());
  }
}

}  // namespace lockstep::trainer::checkpoint
