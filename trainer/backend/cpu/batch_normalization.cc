#include <algorithm>
#include <cmath>
#include <vector>

#include "trainer/backend/cpu/layer_kernels.h"

namespace lockstep::trainer::cpu {
namespace {

// Columns that the loops do at once.
constexpr int64_t kWide = 64;

class BatchNormalization final : public BatchNormalizationKernel {
 public:
  BatchNormalization(const BatchNormalizationOptions& options, const LayerLoops& loops)
      : options_(options),
        loops_(loops),
        moving_mean_(channels()),
        moving_variance_(channels(), 1.0f),
        repeats_(options.channels < kWide && kWide % options.channels == 0 ? kWide / options.channels : 1) {}

  void Bind(const Variables& variables) override { variables_ = variables; }

  void ExportState(float* mean, float* variance) const override {
    std::copy(moving_mean_.begin(), moving_mean_.end(), mean);
    std::copy(moving_variance_.begin(), moving_variance_.end(), variance);
  }
  void ImportMean(const float* mean) override { moving_mean_.assign(mean, mean + channels()); }
  void ImportVariance(const float* variance) override {
    moving_variance_.assign(variance, variance + channels());
  }

  // Mean and 1 / √(variance + epsilon), and of how many values.
  size_t saved_bytes() const override { return (2 * channels() + 1) * sizeof(double); }

  void Forward(int64_t n, const float* x, float* y, void* saved, bool training,
               const SumOverReplicas& sum) override {
    const ScopedFlushDenormals flush;
    std::vector<double> mean(moving_mean_.begin(), moving_mean_.end());
    std::vector<double> variance(moving_variance_.begin(), moving_variance_.end());
    if (training) {
      auto* const statistics = static_cast<double*>(saved);
      const double count = BatchMoments(n, x, sum, &mean, &variance);
      for (size_t c = 0; c < channels(); ++c) {
        statistics[c] = mean[c];
        statistics[channels() + c] = 1 / std::sqrt(variance[c] + options_.epsilon);
      }
      statistics[2 * channels()] = count;
      if (count > 0) Move(mean, variance);
    }
    if (n == 0) return;
    std::vector<float> factor(channels()), offset(channels());
    for (size_t c = 0; c < channels(); ++c) {
      const double scale = GammaOf(c) / std::sqrt(variance[c] + options_.epsilon);
      factor[c] = static_cast<float>(scale);
      offset[c] = static_cast<float>(BetaOf(c) - mean[c] * scale);
    }
    ForBoth(n, [&](int64_t rows, int64_t columns, int64_t at) {
      loops_.scale_columns(rows, columns, x + at, Wide(factor, columns, 0), Wide(offset, columns, 1),
                           options_.relu, y + at);
    });
  }

  // With x̂ = (x − mean) / σ: dβ = Σ dy, dγ = Σ dy · x̂, dx = γ / (σ m) · (m dy − dβ − x̂ dγ), of the batch's m
  // values in a channel (Ioffe, Szegedy, section 3).
  void Backward(int64_t n, const float* x, const float* y, const void* saved, const float* dy, float* dx,
                const SumOverReplicas& sum) override {
    const ScopedFlushDenormals flush;
    const auto* const mean = static_cast<const double*>(saved);
    const double* const inverse = mean + channels();
    const double count = mean[2 * channels()];
    std::vector<float> shift(mean, mean + channels());
    const float* const mask = options_.relu ? y : nullptr;
    // Σ dy, then Σ dy · x̂.
    std::vector<double> sums(2 * channels());
    ForBoth(n, [&](int64_t rows, int64_t columns, int64_t at) {
      Collected(columns, &sums, [&](double* first, double* second) {
        loops_.gradient_moments(rows, columns, x + at, mask == nullptr ? nullptr : mask + at, dy + at,
                                Wide(shift, columns, 0), first, second);
      });
    });
    for (size_t c = 0; c < channels(); ++c) {
      sums[channels() + c] *= inverse[c];
      // (The strategy sums the gradients of the variables over the replicas: these are this one's.)
      if (variables_.dbeta != nullptr) variables_.dbeta[c] = static_cast<float>(sums[c]);
      if (variables_.dgamma != nullptr) variables_.dgamma[c] = static_cast<float>(sums[channels() + c]);
    }
    if (sum) sum(sums);
    if (n == 0 || dx == nullptr) return;
    std::vector<float> of_gradient(channels()), of_value(channels()), constant(channels());
    for (size_t c = 0; c < channels(); ++c) {
      const double scale = GammaOf(c) * inverse[c];
      of_gradient[c] = static_cast<float>(scale);
      of_value[c] = static_cast<float>(-scale * sums[channels() + c] * inverse[c] / count);
      constant[c] = static_cast<float>(-scale * sums[c] / count);
    }
    ForBoth(n, [&](int64_t rows, int64_t columns, int64_t at) {
      loops_.normalization_gradient(rows, columns, x + at, mask == nullptr ? nullptr : mask + at, dy + at,
                                    {.shift = Wide(shift, columns, 0),
                                     .of_gradient = Wide(of_gradient, columns, 1),
                                     .of_value = Wide(of_value, columns, 2),
                                     .constant = Wide(constant, columns, 3)},
                                    dx + at);
    });
  }

 private:
  size_t channels() const { return static_cast<size_t>(options_.channels); }
  double GammaOf(size_t c) const { return variables_.gamma == nullptr ? 1.0 : variables_.gamma[c]; }
  double BetaOf(size_t c) const { return variables_.beta == nullptr ? 0.0 : variables_.beta[c]; }

  // The moments of all replicas' batch, and how many values they are of. Sums are taken around the moving
  // mean, which is near: what is left then does not cancel out.
  double BatchMoments(int64_t n, const float* x, const SumOverReplicas& sum, std::vector<double>* mean,
                      std::vector<double>* variance) {
    std::vector<double> sums(2 * channels() + 1);
    ForBoth(n, [&](int64_t rows, int64_t columns, int64_t at) {
      Collected(columns, &sums, [&](double* first, double* second) {
        loops_.moments(rows, columns, x + at, Wide(moving_mean_, columns, 0), first, second);
      });
    });
    sums.back() = static_cast<double>(n * options_.pixels);
    if (sum) sum(sums);
    const double count = sums.back();
    if (count == 0) return 0;
    for (size_t c = 0; c < channels(); ++c) {
      const double distance = sums[c] / count;
      (*mean)[c] = moving_mean_[c] + distance;
      (*variance)[c] = std::max(0.0, sums[channels() + c] / count - distance * distance);
    }
    return count;
  }

  void Move(const std::vector<double>& mean, const std::vector<double>& variance) {
    const double momentum = options_.momentum;
    for (size_t c = 0; c < channels(); ++c) {
      moving_mean_[c] = static_cast<float>(moving_mean_[c] * momentum + mean[c] * (1 - momentum));
      moving_variance_[c] = static_cast<float>(moving_variance_[c] * momentum + variance[c] * (1 - momentum));
    }
  }

  // Few channels are done several pixels at a time, as if they were more: calls `part(rows, columns, first
  // element)` for those, and for what is left over.
  template <typename Part>
  void ForBoth(int64_t n, Part&& part) const {
    const int64_t rows = n * options_.pixels, wide = rows / repeats_;
    if (wide > 0) part(wide, repeats_ * options_.channels, int64_t{0});
    const int64_t done = wide * repeats_;
    if (done < rows) part(rows - done, options_.channels, done * options_.channels);
  }

  // `values` as often as there are columns for. `place` is this call's own among those in use at once.
  const float* Wide(const std::vector<float>& values, int64_t columns, size_t place) {
    if (columns == options_.channels) return values.data();
    std::vector<float>& wide = wide_[place];
    wide.resize(static_cast<size_t>(columns));
    for (size_t i = 0; i < wide.size(); ++i) wide[i] = values[i % values.size()];
    return wide.data();
  }

  // Lets `collect` add to two rows of sums by column, and adds these to the sums by channel.
  template <typename Collect>
  void Collected(int64_t columns, std::vector<double>* sums, Collect&& collect) {
    const auto width = static_cast<size_t>(columns);
    columns_.assign(2 * width, 0.0);
    collect(columns_.data(), columns_.data() + width);
    for (size_t i = 0; i < width; ++i) {
      (*sums)[i % channels()] += columns_[i];
      (*sums)[channels() + i % channels()] += columns_[width + i];
    }
  }

  const BatchNormalizationOptions options_;
  const LayerLoops& loops_;
  std::vector<float> moving_mean_, moving_variance_;
  int64_t repeats_;
  Variables variables_;
  std::vector<float> wide_[4];
  std::vector<double> columns_;
};

}  // namespace

std::unique_ptr<BatchNormalizationKernel> MakeBatchNormalization(const BatchNormalizationOptions& options,
                                                                 Context& context) {
  return std::make_unique<BatchNormalization>(options, context.loops());
}

}  // namespace lockstep::trainer::cpu
