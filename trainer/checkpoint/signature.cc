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

}  // namespace

int64_t Variable::elements() const {
  int64_t product = 1;
  for (const int64_t extent : shape) product *= extent;
  return product;
}

int64_t Signature::elements() const {
  int64_t sum = 0;
  for (const Variable& variable : variables) sum += variable.elements();
  return sum;
}

std::string Difference(const Signature& saved, const Signature& job) {
  if (saved.variables.size() != job.variables.size()) {
    return "it has " + std::to_string(saved.variables.size()) + " variables, the job's model " +
           std::to_string(job.variables.size());
  }
  for (size_t i = 0; i < job.variables.size(); ++i) {
    const Variable &theirs = saved.variables[i], &ours = job.variables[i];
    if (theirs == ours) continue;
    return "it has the variable " + theirs.name + " " + ShapeText(theirs) + " where the job's model has " +
           ours.name + " " + ShapeText(ours);
  }
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
  json variables = json::array();
  for (const Variable& variable : signature.variables) {
    variables.push_back({{"name", variable.name}, {"shape", variable.shape}});
  }
  const json all = {{"variables", std::move(variables)},
                    {"optimizer", signature.optimizer},
                    {"slots", signature.slots},
                    {"precision", signature.precision},
                    {"seed", signature.seed},
                    {"trainingSamples", signature.training_samples}};
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<Signature> ParseSignature(std::string_view text) {
  try {
    const json all = json::parse(text);
    Signature signature;
    int64_t total = 0;
    for (const json& each : all.at("variables")) {
      Variable variable{each.at("name").get<std::string>(), each.at("shape").get<std::vector<int64_t>>()};
      int64_t elements = 1;
      for (const int64_t extent : variable.shape) {
        if (extent < 1 || __builtin_mul_overflow(elements, extent, &elements) || elements > kMostElements) {
          return InvalidArgument("the shape of " + variable.name + " is impossible");
        }
      }
      total += elements;
      if (total > kMostElements) return InvalidArgument("its variables are impossibly large");
      signature.variables.push_back(std::move(variable));
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
