#include "trainer/batch_feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "trainer/backend/factory.h"
#include "trainer/data/source.h"
#include "trainer/model/model.h"
#include "trainer/tensor/bfloat16.h"

namespace lockstep::trainer {
namespace {

constexpr int64_t kBatch = 16, kEpochs = 2;

// Drawn digits, and a model that reads them augmented.
struct Job {
  explicit Job(const data::AugmentationOptions& options, Precision precision = Precision::kFloat32)
      : source(data::Source::Open({.validation_samples = 5, .samples = 75, .test_samples = 9})),
        block(source->plan().block_bytes()),
        backend(MakeBackend({.threads = 1})) {
    source->LoadInto(block.bytes());
    view = std::make_unique<data::DatasetView>(data::DatasetView::FromBlock(block.bytes()));
    augmentation = std::make_unique<data::Augmentation>(options, view->plan(), 4);
    model = std::make_unique<Model>(
        ModelConfig{.layers = {{.units = 10}}},
        ModelOptions{
            .sample = augmentation->output_shape(), .max_local_batch = kBatch, .precision = precision},
        *backend);
  }
  std::unique_ptr<BatchFeed> Feed(int rank, int world_size, bool augmented = true) const {
    return BatchFeed::Make({.dataset = *view,
                            .model = *model,
                            .backend = *backend,
                            .augmentation = augmented ? augmentation.get() : nullptr,
                            .sampler = sampler,
                            .epochs = kEpochs,
                            .share = rank,
                            .shares = world_size,
                            .capacity = kBatch});
  }
  std::vector<float> Augmented(int64_t epoch, uint32_t sample) const {
    std::vector<float> row(static_cast<size_t>(augmentation->features()));
    augmentation->Train(view->RawSample(sample).data(), epoch, sample, row.data());
    return row;
  }

  data::Sampler::Options sampler{.samples = 70, .batch_size = kBatch, .seed = 4};
  std::unique_ptr<data::Source> source;
  data::OwnedBlock block;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<data::DatasetView> view;
  std::unique_ptr<data::Augmentation> augmentation;
  std::unique_ptr<Model> model;
};

const data::AugmentationOptions kOptions{
    .crop_height = 24, .crop_width = 20, .flip = true, .brightness = 0.2, .whitening = true};

std::vector<float> Row(const void* inputs, DataType type, int64_t row, int64_t features) {
  std::vector<float> values;
  for (int64_t i = row * features; i < (row + 1) * features; ++i) {
    values.push_back(type == DataType::kFloat32 ? static_cast<const float*>(inputs)[i]
                                                : ToFloat(static_cast<const BFloat16*>(inputs)[i]));
  }
  return values;
}

TEST(AugmentedFeedTest, EveryRankGetsItsShardWhateverTheirNumber) {
  const Job job(kOptions);
  const int64_t features = job.augmentation->features();
  for (const int world : {1, 3}) {
    for (int rank = 0; rank < world; ++rank) {
      const auto feed = job.Feed(rank, world);
      data::Sampler sampler(job.sampler);
      for (data::Position at; at.epoch < kEpochs; at = sampler.Next(at)) {
        const auto shard = sampler.Shard(at, rank, world);
        const BatchFeed::Batch batch = feed->Load(at, shard);
        for (size_t i = 0; i < shard.size(); ++i) {
          ASSERT_EQ(Row(batch.inputs, DataType::kFloat32, static_cast<int64_t>(i), features),
                    job.Augmented(at.epoch, shard[i]));
          int32_t label = -1;
          job.view->GatherLabels(data::Range{shard[i], 1}, &label);
          ASSERT_EQ(static_cast<const int32_t*>(batch.labels)[i], label);
        }
      }
    }
  }
}

TEST(AugmentedFeedTest, GoesOnInTheMiddleAndEvaluatesInBetween) {
  const Job job(kOptions);
  const int64_t features = job.augmentation->features();
  const auto feed = job.Feed(0, 1);
  data::Sampler sampler(job.sampler);
  const data::Position middle{1, 2 * kBatch};
  for (const data::Position& at : {middle, sampler.Next(middle)}) {
    const auto shard = sampler.Shard(at, 0, 1);
    const BatchFeed::Batch batch = feed->Load(at, shard);
    EXPECT_EQ(Row(batch.inputs, DataType::kFloat32, 3, features), job.Augmented(1, shard[3]));
    const BatchFeed::Batch test = feed->Load(data::Range{job.view->test().first, 4});
    std::vector<float> wanted(static_cast<size_t>(features));
    job.augmentation->Evaluate(job.view->RawSample(job.view->test().first + 2).data(), wanted.data());
    EXPECT_EQ(Row(test.inputs, DataType::kFloat32, 2, features), wanted);
  }
}

TEST(AugmentedFeedTest, RoundsToBFloat16Once) {
  const auto backend = MakeBackend({.threads = 1});
  const Support support = backend->Supports(Op::kDense, DataType::kBFloat16);
  if (!support.supported) GTEST_SKIP() << support.reason;
  const Job job(kOptions, Precision::kBFloat16);
  const auto feed = job.Feed(0, 1);
  data::Sampler sampler(job.sampler);
  const auto shard = sampler.Shard({}, 0, 1);
  const BatchFeed::Batch batch = feed->Load(data::Position{}, shard);
  std::vector<float> wanted = job.Augmented(0, shard[5]);
  for (float& value : wanted) value = ToFloat(ToBFloat16(value));
  EXPECT_EQ(Row(batch.inputs, DataType::kBFloat16, 5, job.augmentation->features()), wanted);
}

TEST(AugmentedFeedTest, WithoutAugmentationSamplesAreGatheredAsTheyAre) {
  const Job job({});
  const auto feed = job.Feed(0, 1, /*augmented=*/false);
  data::Sampler sampler(job.sampler);
  const auto shard = sampler.Shard({}, 0, 1);
  const BatchFeed::Batch batch = feed->Load(data::Position{}, shard);
  std::vector<float> wanted(static_cast<size_t>(job.view->features()));
  job.view->Gather(data::Range{shard[1], 1}, wanted.data());
  EXPECT_EQ(Row(batch.inputs, DataType::kFloat32, 1, job.view->features()), wanted);
}

}  // namespace
}  // namespace lockstep::trainer
