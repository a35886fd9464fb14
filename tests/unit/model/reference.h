#pragma once

#include <cmath>
#include <vector>

#include "tests/unit/model/model_fixture.h"

namespace lockstep::trainer {

// The same perceptron in double and in plain loops, to check the real one against. Parameters are in
// canonical order.
class Reference {
 public:
  Reference(const ModelConfig& config, int64_t features) : config_(config), features_(features) {}

  // Mean loss over the batch.
  double Loss(const std::vector<double>& parameters, const Batch& batch) const {
    double sum = 0;
    for (int64_t r = 0; r < batch.n; ++r)
      sum += SampleLoss(Activations(parameters, batch, r).back(), batch, r);
    return sum / static_cast<double>(batch.n);
  }

  // ∂(mean loss)/∂parameters by back-propagation.
  std::vector<double> Gradient(const std::vector<double>& parameters, const Batch& batch) const {
    std::vector<double> gradient(parameters.size());
    for (int64_t r = 0; r < batch.n; ++r) {
      const auto activations = Activations(parameters, batch, r);
      std::vector<double> dy = OutputGradient(activations.back(), batch, r);
      size_t end = parameters.size();
      for (size_t layer = config_.layers.size(); layer-- > 0;) {
        const LayerConfig& c = config_.layers[layer];
        const std::vector<double>&x = activations[layer], &y = activations[layer + 1];
        const size_t units = y.size();
        const size_t begin = end - x.size() * units - (c.use_bias ? units : 0);
        std::vector<double> dx(x.size());
        for (size_t j = 0; j < units; ++j) {
          const double slope = c.activation == Activation::kRelu && y[j] <= 0 ? 0 : dy[j];
          if (c.use_bias) gradient[begin + x.size() * units + j] += slope;
          for (size_t i = 0; i < x.size(); ++i) {
            gradient[begin + i * units + j] += slope * x[i];
            dx[i] += slope * parameters[begin + i * units + j];
          }
        }
        dy = dx;
        end = begin;
      }
    }
    return gradient;
  }

 private:
  // Of one sample: the input, then each layer's output.
  std::vector<std::vector<double>> Activations(const std::vector<double>& parameters, const Batch& batch,
                                               int64_t r) const {
    const auto first = batch.inputs.begin() + r * features_;
    std::vector<std::vector<double>> activations = {{first, first + features_}};
    size_t at = 0;
    for (const LayerConfig& c : config_.layers) {
      const std::vector<double>& x = activations.back();
      const auto units = static_cast<size_t>(c.units);
      std::vector<double> y(units);
      for (size_t i = 0; i < x.size(); ++i) {
        for (size_t j = 0; j < units; ++j) y[j] += x[i] * parameters[at + i * units + j];
      }
      at += x.size() * units;
      for (size_t j = 0; c.use_bias && j < units; ++j) y[j] += parameters[at++];
      for (double& value : y) value = c.activation == Activation::kRelu ? std::max(value, 0.0) : value;
      activations.push_back(y);
    }
    return activations;
  }

  double SampleLoss(const std::vector<double>& y, const Batch& batch, int64_t r) const {
    double sum = 0;
    if (config_.loss == LossKind::kMeanSquaredError) {
      for (size_t j = 0; j < y.size(); ++j) sum += std::pow(y[j] - Target(batch, y.size(), r, j), 2);
      return sum / static_cast<double>(y.size());
    }
    for (const double value : y) sum += std::exp(value);
    return std::log(sum) - y[static_cast<size_t>(batch.labels[static_cast<size_t>(r)])];
  }

  std::vector<double> OutputGradient(const std::vector<double>& y, const Batch& batch, int64_t r) const {
    const double n = static_cast<double>(batch.n);
    std::vector<double> dy(y.size());
    double sum = 0;
    for (const double value : y) sum += std::exp(value);
    for (size_t j = 0; j < y.size(); ++j) {
      if (config_.loss == LossKind::kMeanSquaredError) {
        dy[j] = 2 * (y[j] - Target(batch, y.size(), r, j)) / static_cast<double>(y.size()) / n;
      } else {
        const bool label = j == static_cast<size_t>(batch.labels[static_cast<size_t>(r)]);
        dy[j] = (std::exp(y[j]) / sum - (label ? 1 : 0)) / n;
      }
    }
    return dy;
  }

  static double Target(const Batch& batch, size_t outputs, int64_t r, size_t j) {
    return batch.targets[static_cast<size_t>(r) * outputs + j];
  }

  ModelConfig config_;
  int64_t features_;
};

}  // namespace lockstep::trainer
