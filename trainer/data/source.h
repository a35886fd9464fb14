#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "trainer/data/dataset.h"

// Where samples come from. Every failure is a BadData that says which file, where in it, what is wrong and
// what would be right.
namespace lockstep::trainer::data {

enum class Format { kIdx, kCifar10, kCsv, kDigits };

inline constexpr uint64_t kDigitsSeed = 20120229;  // of the embedded data set
inline constexpr int64_t kDigitsTrainingSamples = 60'000;
inline constexpr int64_t kDigitsTestSamples = 10'000;

struct SourceOptions {
  Format format = Format::kDigits;
  // Idx:     a folder with {train,t10k}-{images-idx3,labels-idx1}-ubyte, each plain or .gz.
  // Cifar10: a folder with data_batch_1.bin, data_batch_2.bin … and test_batch.bin.
  // Csv:     a file, or a folder with train.csv and, if there is a test set, test.csv. Every line: features,
  // then
  //          the target; a first line without any number is a header.
  // Digits:  unused.
  std::string path;
  int64_t validation_samples = 0;           // taken off the end of the training samples; fewer than there are
  TargetType targets = TargetType::kLabel;  // kValue: for a regression
  int64_t classes = 0;  // labels must be below; 0: the largest label plus one (Cifar10 and Digits: 10)
  // Digits: how many to draw, validation included; 0: kDigitsTrainingSamples, kDigitsTestSamples.
  int64_t samples = 0;
  int64_t test_samples = 0;
  uint64_t digits_seed = kDigitsSeed;
  size_t memory_limit = size_t{16} << 30;  // a larger data set is refused before its memory is asked for
};

// An opened source whose sizes are known. One thread at a time.
class Source {
 public:
  // Looks at the files' headers (of CSV: reads it whole). Throws BadData.
  static std::unique_ptr<Source> Open(const SourceOptions& options);

  virtual ~Source() = default;

  const DatasetPlan& plan() const { return plan_; }

  // Fills `block`, of at least plan().block_bytes(), aligned to 64. Throws BadData, and then the block is not
  // viewable.
  void LoadInto(std::span<std::byte> block) { LoadSlice(block, 0, 1); }

  // The same by `parts` processes (or threads) that share the block, each doing its `part` (0 …): the block
  // is whole once all have returned. Sources that are not divisible (files) do everything in part 0 and
  // return at once for the others, which then need not open the source at all: they view the finished block.
  virtual bool divisible() const { return false; }
  void LoadSlice(std::span<std::byte> block, int64_t part, int64_t parts);

 protected:
  // The block's samples and targets, to be filled by a source.
  struct Destination {
    std::byte* samples;  // [samples, sample_bytes]; at least 64 writable bytes lie in front of it
    std::byte* targets;  // int32 or float32 [samples]
  };

  explicit Source(const DatasetPlan& plan) : plan_(plan) {}
  // Fills part `part` of `parts`; never called for other parts than 0 unless divisible().
  virtual void Fill(const Destination& destination, int64_t part, int64_t parts) = 0;

 private:
  DatasetPlan plan_;
};

}  // namespace lockstep::trainer::data
