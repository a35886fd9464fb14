#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "trainer/data/input_file.h"
#include "trainer/data/readers.h"
#include "trainer/error.h"

// The binary version of CIFAR-10 (https://www.cs.toronto.edu/~kriz/cifar.html): records of a label and 3 × 32
// × 32 bytes: the red plane, the green one, the blue one, each row by row. Samples are [32, 32, 3], as images
// are everywhere here: the planes are interleaved once, when the file is read.
namespace lockstep::trainer::data {
namespace {

constexpr size_t kSide = 32, kChannels = 3, kPlane = kSide * kSide;
constexpr size_t kFeatures = kChannels * kPlane, kRecord = 1 + kFeatures;
constexpr int64_t kClasses = 10;
constexpr int kMostBatches = 999;

constexpr char kExpected[] =
    "CIFAR-10 data are the files data_batch_1.bin, data_batch_2.bin … and test_batch.bin";

class Cifar10Source : public Source {
 public:
  Cifar10Source(const DatasetPlan& plan, int64_t classes, std::vector<InputFile> files)
      : Source(plan), classes_(classes), files_(std::move(files)) {}

 private:
  void Fill(const Destination& to, int64_t, int64_t) override {
    int64_t sample = 0;
    for (const InputFile& file : files_) FillFrom(file, to, &sample);
  }

  void FillFrom(const InputFile& file, const Destination& to, int64_t* sample) const {
    constexpr size_t kRecordsAtOnce = 256;
    std::vector<std::byte> buffer(kRecordsAtOnce * kRecord);
    for (size_t at = 0; at < file.size();) {
      const size_t bytes = std::min(buffer.size(), file.size() - at);
      file.ReadAt(at, {buffer.data(), bytes});
      for (size_t i = 0; i < bytes; i += kRecord, ++*sample) {
        const int label = std::to_integer<int>(buffer[i]);
        if (label >= classes_) {
          file.Fail("label " + std::to_string(label) + " at byte " + std::to_string(at + i) +
                    ": labels must be below " + std::to_string(classes_));
        }
        StoreTarget(plan(), label, to.targets, *sample);
        Interleave(buffer.data() + i + 1, to.samples + static_cast<size_t>(*sample) * kFeatures);
      }
      at += bytes;
    }
  }

  static void Interleave(const std::byte* planes, std::byte* pixels) {
    for (size_t i = 0; i < kPlane; ++i) {
      for (size_t c = 0; c < kChannels; ++c) pixels[i * kChannels + c] = planes[c * kPlane + i];
    }
  }

  int64_t classes_;
  std::vector<InputFile> files_;  // training, then test
};

InputFile OpenBatch(const std::string& path) {
  InputFile file(path);
  if (file.size() == 0 || file.size() % kRecord != 0) {
    file.Fail("has " + std::to_string(file.size()) + " bytes; CIFAR-10 files are whole records of " +
              std::to_string(kRecord) + " bytes, one at least");
  }
  return file;
}

}  // namespace

std::unique_ptr<Source> OpenCifar10(const SourceOptions& options) {
  if (!IsThere(options.path)) throw BadData(options.path + ": no such folder; " + kExpected);
  std::vector<InputFile> files;
  DatasetPlan plan;
  for (int i = 1; i <= kMostBatches; ++i) {
    const std::string path = options.path + "/data_batch_" + std::to_string(i) + ".bin";
    if (!IsThere(path)) break;
    files.push_back(OpenBatch(path));
    plan.training += static_cast<int64_t>(files.back().size() / kRecord);
  }
  if (files.empty()) throw BadData(options.path + ": no data_batch_1.bin; " + kExpected);
  if (!IsThere(options.path + "/test_batch.bin"))
    throw BadData(options.path + ": no test_batch.bin; " + kExpected);
  files.push_back(OpenBatch(options.path + "/test_batch.bin"));
  plan.test = static_cast<int64_t>(files.back().size() / kRecord);

  const int64_t classes = options.classes > 0 ? options.classes : kClasses;
  plan.sample_type = SampleType::kUint8;
  plan.target_type = options.targets;
  plan.scale = 1.0f / 255.0f;
  plan.features = kFeatures;
  plan.height = plan.width = kSide;
  plan.channels = kChannels;
  plan.classes = options.targets == TargetType::kLabel ? classes : 0;
  FinishPlan(options, options.path, &plan);
  return std::make_unique<Cifar10Source>(plan, classes, std::move(files));
}

}  // namespace lockstep::trainer::data
