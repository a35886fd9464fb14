// How near a training step comes to the matrix products it consists of: the 784–256–256–10 perceptron with
// ReLU, cross-entropy and Adam, on synthetic data, one process, one core. Bare products and whole steps are
// timed in turns in one run, so that a machine shared with others slows both; the best round of each counts.
//
//   compute_bench [--verbose] [BATCH...]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/bench/compute/products.h"
#include "trainer/backend/factory.h"
#include "trainer/model/model.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/tensor/bfloat16.h"

namespace lockstep::bench {
namespace {

using trainer::DataType;

const std::vector<int64_t> kWidths = {784, 256, 256, 10};

trainer::ModelConfig Perceptron() {
  trainer::ModelConfig config;
  for (size_t i = 1; i < kWidths.size(); ++i) {
    trainer::LayerConfig layer;
    layer.units = kWidths[i];
    layer.activation = i + 1 < kWidths.size() ? trainer::Activation::kRelu : trainer::Activation::kNone;
    config.layers.push_back(layer);
  }
  return config;
}

// A whole training step of one process: forward, loss, backward, update.
class WholeStep {
 public:
  enum class Update {
    kLate,     // all parameters, after the backward pass
    kByLayer,  // each layer as soon as its gradients are there, while they are in the cache
    kShard,    // as one of the ranks that share a global batch of 256 does: its part, after the backward pass
  };

  WholeStep(int64_t batch, DataType type, Update update)
      : batch_(batch),
        update_(update),
        backend_(trainer::MakeBackend({.threads = 1})),
        model_(Perceptron(),
               {.sample = {kWidths[0]},
                .max_local_batch = batch,
                .precision = type == DataType::kBFloat16 ? trainer::Precision::kBFloat16
                                                         : trainer::Precision::kFloat32},
               *backend_),
        optimizer_(trainer::MakeOptimizer({.kind = trainer::OptimizerKind::kAdam, .learning_rate = 0.001},
                                          *backend_)) {
    const auto bytes = static_cast<size_t>(model_.layout().total) * sizeof(float);
    for (trainer::Buffer& flat : flat_) flat = trainer::ZeroedHostBuffer(bytes);
    model_.Bind(flat_[0].span<float>(), flat_[1].span<float>());
    model_.Initialize(1);
    buffers_ = {flat_[0].as<float>(), flat_[1].as<float>(), {flat_[2].as<float>(), flat_[3].as<float>()}};
    FillData();
  }

  void Step() {
    const auto update = [this](int64_t begin, int64_t end) {
      optimizer_->Update(step_, buffers_, begin, end, {});
      model_.ParametersChanged(begin, end);
    };
    ++step_;
    const auto slot = static_cast<size_t>(step_ % kBatches);
    const size_t sample_bytes = SizeOf(model_.input_type()) * static_cast<size_t>(kWidths[0]);
    const char* inputs = inputs_.as<char>() + slot * static_cast<size_t>(batch_) * sample_bytes;
    const int32_t* labels = labels_.data() + slot * static_cast<size_t>(batch_);
    const trainer::ModelBatch batch{
        .inputs = inputs, .labels = labels, .n = batch_, .scale = 1.0f / static_cast<float>(batch_)};
    if (update_ == Update::kByLayer) {
      model_.TrainStep(batch, update);
    } else {
      model_.TrainStep(batch, {});
      const int64_t total = model_.layout().total;
      const int64_t ranks = update_ == Update::kShard ? std::max<int64_t>(1, kGlobalBatch / batch_) : 1;
      optimizer_->Update(step_, buffers_, 0, total / ranks, {});
      model_.ParametersChanged(0, total);
    }
  }

 private:
  static constexpr int64_t kBatches = 16;
  static constexpr int64_t kGlobalBatch = 256;

  // Digits are mostly zeros, and so are these: a fifth of the inputs is uniform in [0, 1).
  void FillData() {
    uint32_t state = 12345;
    const auto random = [&state] { return (state = state * 1664525u + 1013904223u) >> 8; };
    const auto samples = static_cast<size_t>(kBatches * batch_);
    const size_t count = samples * static_cast<size_t>(kWidths[0]);
    inputs_ = trainer::ZeroedHostBuffer(count * SizeOf(model_.input_type()));
    for (size_t i = 0; i < count; ++i) {
      const float value = random() % 5 == 0 ? static_cast<float>(random()) * 0x1p-24f : 0.0f;
      if (model_.input_type() == DataType::kBFloat16) {
        inputs_.as<trainer::BFloat16>()[i] = trainer::ToBFloat16(value);
      } else {
        inputs_.as<float>()[i] = value;
      }
    }
    labels_.resize(samples);
    for (int32_t& label : labels_) label = static_cast<int32_t>(random() % 10);
  }

  int64_t batch_;
  Update update_;
  std::unique_ptr<trainer::Backend> backend_;
  trainer::Model model_;
  std::unique_ptr<trainer::Optimizer> optimizer_;
  trainer::Buffer flat_[4];
  trainer::UpdateBuffers buffers_;
  trainer::Buffer inputs_;
  std::vector<int32_t> labels_;
  int64_t step_ = 0;
};

// The fastest of a few calls in a row: the first finds the caches as another program left them.
template <typename Call>
double Fastest(Call&& call) {
  double best = 1e9;
  for (int i = 0; i < 4; ++i) {
    const auto start = std::chrono::steady_clock::now();
    call();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

struct Timing {
  double bare = 1e9;
  double late = 1e9;
  double by_layer = 1e9;
  double shard = 1e9;
};

Timing Measure(int64_t batch, DataType type, bool verbose) {
  BareProducts bare(kWidths, batch, type);
  WholeStep late(batch, type, WholeStep::Update::kLate);
  WholeStep by_layer(batch, type, WholeStep::Update::kByLayer);
  WholeStep shard(batch, type, WholeStep::Update::kShard);
  const int64_t rounds = 40 * std::max<int64_t>(1, 512 / batch);
  Timing best;
  for (int64_t round = 0; round < rounds; ++round) {
    best.bare = std::min(best.bare, Fastest([&] { bare.Step(); }));
    best.late = std::min(best.late, Fastest([&] { late.Step(); }));
    best.by_layer = std::min(best.by_layer, Fastest([&] { by_layer.Step(); }));
    best.shard = std::min(best.shard, Fastest([&] { shard.Step(); }));
  }
  const double samples = static_cast<double>(batch);
  const std::string name(trainer::DataTypeName(type));
  std::printf("%-9s %5ld %9.1f %10.0f", name.c_str(), batch, bare.flops() / best.bare / 1e9,
              samples / best.bare);
  for (const double seconds : {best.late, best.by_layer, best.shard}) {
    std::printf(" %10.0f %5.1f %%", samples / seconds, 100 * best.bare / seconds);
  }
  std::printf("\n");
  if (verbose) {
    for (const auto& line : bare.report()) std::printf("    %s\n", line.c_str());
    std::printf("    step: bare %.1f us, whole %.1f us, by layers %.1f us, a shard %.1f us\n",
                best.bare * 1e6, best.late * 1e6, best.by_layer * 1e6, best.shard * 1e6);
  }
  std::fflush(stdout);
  return best;
}

int Main(int argc, char** argv) {
  bool verbose = false;
  std::vector<int64_t> batches;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--verbose") == 0) {
      verbose = true;
    } else if (const long batch = std::atol(argv[i]); batch > 0) {
      batches.push_back(batch);
    } else {
      std::fprintf(stderr, "usage: compute_bench [--verbose] [BATCH...]\n");
      return 2;
    }
  }
  if (batches.empty()) batches = {256, 128, 64, 32};

  const auto backend = trainer::MakeBackend({.threads = 1});
  std::printf("784-256-256-10, Adam, one core: %s\n", backend->description().c_str());
  std::printf("%-9s %5s %9s %10s %18s %18s %18s\n", "", "", "products", "limit", "update: whole",
              "layer by layer", "a rank's shard");
  std::printf("%-9s %5s %9s %10s %18s %18s %18s\n", "precision", "batch", "GFLOP/s", "images/s",
              "images/s, of limit", "images/s, of limit", "images/s, of limit");
  const trainer::Support bf16 = backend->Supports(trainer::Op::kDense, DataType::kBFloat16);
  if (!bf16.native) std::printf("BFloat16: %s\n", bf16.reason.c_str());
  for (const int64_t batch : batches) {
    const Timing f32 = Measure(batch, DataType::kFloat32, verbose);
    if (!bf16.supported) continue;
    const Timing half = Measure(batch, DataType::kBFloat16, verbose);
    std::printf("BFloat16 / Float32: %.2f x, layer by layer %.2f x, a shard %.2f x\n", f32.late / half.late,
                f32.by_layer / half.by_layer, f32.shard / half.shard);
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) { return lockstep::bench::Main(argc, argv); }
