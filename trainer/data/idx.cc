#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "trainer/data/gzip.h"
#include "trainer/data/input_file.h"
#include "trainer/data/readers.h"
#include "trainer/error.h"

// The IDX format (http://yann.lecun.com/exdb/mnist/): 0, 0, the type (8: unsigned bytes), the number of
// dimensions; each dimension as a big-endian uint32; then the values.
namespace lockstep::trainer::data {
namespace {

constexpr uint32_t kLabelsMagic = 0x00000801, kImagesMagic = 0x00000803;
constexpr size_t kLabelsHeader = 8, kImagesHeader = 16;
constexpr size_t kMostLabelBytes = size_t{256} << 20;
constexpr size_t kMostExplainedBytes = size_t{1} << 30;

uint32_t BigEndian(const std::byte* bytes) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | std::to_integer<uint32_t>(bytes[i]);
  return value;
}

std::string Hex(uint32_t value) {
  char text[11];
  std::snprintf(text, sizeof text, "0x%08x", value);
  return text;
}

// The plain bytes of a file that may be compressed.
class IdxFile {
 public:
  explicit IdxFile(const std::string& path) : file_(path), size_(file_.size()) {
    if (!path.ends_with(".gz")) return;
    compressed_ = file_.ReadAll();
    size_ = InflatedSize(compressed_, path);
  }

  const std::string& path() const { return file_.path(); }
  bool is_compressed() const { return !compressed_.empty(); }
  size_t size() const { return size_; }
  [[noreturn]] void Fail(const std::string& message) const { file_.Fail(message); }

  // `out` is as long as the contents, or shorter when not compressed.
  void Read(std::span<std::byte> out) const {
    if (is_compressed()) {
      Inflate(compressed_, out, path());
    } else {
      file_.ReadAt(0, out);
    }
  }

  void CheckMagic(const std::byte* header, uint32_t expected) const {
    const uint32_t magic = BigEndian(header);
    if (magic == expected) return;
    std::string message = "begins with " + Hex(magic) + " where IDX " +
                          (expected == kImagesMagic ? "images" : "labels") + " begin with " + Hex(expected);
    if (magic >> 16 == 0x1f8b) message += ": it is compressed, and its name should end in .gz";
    if (magic == kImagesMagic) message += ": it has images";
    if (magic == kLabelsMagic) message += ": it has labels";
    Fail(message);
  }

 private:
  InputFile file_;
  std::vector<std::byte> compressed_;
  size_t size_;
};

std::vector<uint8_t> ReadLabels(const IdxFile& file) {
  if (file.size() < kLabelsHeader) {
    file.Fail("has " + std::to_string(file.size()) + " bytes: too short for IDX labels");
  }
  if (file.size() > kMostLabelBytes) file.Fail("too large for IDX labels");
  std::vector<std::byte> bytes(file.size());
  file.Read(bytes);
  file.CheckMagic(bytes.data(), kLabelsMagic);
  const size_t count = BigEndian(bytes.data() + 4);
  if (count == 0) file.Fail("has no samples");
  if (bytes.size() != kLabelsHeader + count) {
    file.Fail("has " + std::to_string(bytes.size()) + " bytes; its header, of " + std::to_string(count) +
              " labels, asks for " + std::to_string(kLabelsHeader + count));
  }
  std::vector<uint8_t> labels(count);
  std::memcpy(labels.data(), bytes.data() + kLabelsHeader, count);
  return labels;
}

// Images and labels of one set.
class IdxPair {
 public:
  IdxPair(const std::string& images_path, const std::string& labels_path)
      : labels_file_(labels_path), images_(images_path), labels_(ReadLabels(labels_file_)) {
    if (images_.size() <= kImagesHeader) {
      images_.Fail("has " + std::to_string(images_.size()) + " bytes: too short for IDX images");
    }
    // To read the header of a compressed file is to inflate it all, and that is to happen once, into the
    // block. So the sizes come from the labels' count and the gzip trailer, and are confirmed in Load().
    if (!images_.is_compressed()) {
      std::vector<std::byte> header(kImagesHeader);
      images_.Read(header);
      CheckHeader(header.data());
      rows_ = BigEndian(header.data() + 8);
      columns_ = BigEndian(header.data() + 12);
    } else if ((images_.size() - kImagesHeader) % labels_.size() != 0) {
      Explain();
      images_.Fail("does not hold one image for each of the " + std::to_string(labels_.size()) +
                   " labels of " + labels_file_.path());
    } else {
      const auto side = static_cast<size_t>(std::lround(std::sqrt(static_cast<double>(features()))));
      if (side * side == features()) rows_ = columns_ = side;
    }
  }

  const IdxFile& images() const { return images_; }
  const IdxFile& labels_file() const { return labels_file_; }
  const std::vector<uint8_t>& labels() const { return labels_; }
  size_t features() const { return (images_.size() - kImagesHeader) / labels_.size(); }
  // Of an image. Of compressed ones they are taken to be equal, which Load() confirms; 0 where they cannot
  // be.
  size_t rows() const { return rows_; }
  size_t columns() const { return columns_; }

  // Writes the images to `samples`, and their header to the 16 bytes in front of it.
  void Load(std::byte* samples) const {
    std::byte* start = samples - kImagesHeader;
    images_.Read({start, images_.size()});
    CheckHeader(start);
  }

  // The sizes guessed from a compressed file are wrong: says what its header says.
  void Explain() const {
    if (!images_.is_compressed() || images_.size() > kMostExplainedBytes) return;
    std::vector<std::byte> bytes(images_.size());
    images_.Read(bytes);
    CheckHeader(bytes.data());
  }

 private:
  void CheckHeader(const std::byte* header) const {
    images_.CheckMagic(header, kImagesMagic);
    const size_t count = BigEndian(header + 4), rows = BigEndian(header + 8),
                 columns = BigEndian(header + 12);
    if (count != labels_.size()) {
      images_.Fail("has " + std::to_string(count) + " images, but " + labels_file_.path() + " has " +
                   std::to_string(labels_.size()) + " labels");
    }
    size_t bytes = 0;
    if (rows == 0 || columns == 0) images_.Fail("its images have no pixels");
    if (__builtin_mul_overflow(count, rows * columns, &bytes) || bytes > images_.size() ||
        bytes + kImagesHeader != images_.size()) {
      images_.Fail("has " + std::to_string(images_.size()) + " bytes; its header, of " +
                   std::to_string(count) + " images of " + std::to_string(rows) + "×" +
                   std::to_string(columns) + ", asks for " +
                   (bytes == 0 ? std::string("more than fits") : std::to_string(bytes + kImagesHeader)));
    }
    if (rows_ != 0 && (rows != rows_ || columns != columns_)) {
      images_.Fail("its images are " + std::to_string(rows) + "×" + std::to_string(columns) +
                   ", and compressed ones must be square; decompress it");
    }
  }

  IdxFile labels_file_;
  IdxFile images_;
  std::vector<uint8_t> labels_;
  size_t rows_ = 0;
  size_t columns_ = 0;
};

class IdxSource : public Source {
 public:
  IdxSource(const DatasetPlan& plan, IdxPair training, IdxPair test)
      : Source(plan), training_(std::move(training)), test_(std::move(test)) {}

 private:
  void Fill(const Destination& to, int64_t, int64_t) override {
    const int64_t first_test = plan().training + plan().validation;
    // The test images first: their header lands on the last training images.
    test_.Load(to.samples + static_cast<size_t>(first_test) * plan().sample_bytes());
    training_.Load(to.samples);
    StoreLabels(training_, to.targets, 0);
    StoreLabels(test_, to.targets, first_test);
  }

  void StoreLabels(const IdxPair& pair, std::byte* targets, int64_t first) const {
    for (size_t i = 0; i < pair.labels().size(); ++i) {
      StoreTarget(plan(), pair.labels()[i], targets, first + static_cast<int64_t>(i));
    }
  }

  IdxPair training_, test_;
};

constexpr const char* kNames[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                  "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

// The plain file where both are there.
std::string PathOf(const std::string& folder, const char* name) {
  const std::string plain = folder + "/" + name;
  if (IsThere(plain)) return plain;
  if (IsThere(plain + ".gz")) return plain + ".gz";
  std::string missing, all;
  for (const char* each : kNames) {
    const std::string path = folder + "/" + each;
    all += (all.empty() ? "" : ", ") + std::string(each);
    if (!IsThere(path) && !IsThere(path + ".gz"))
      missing += (missing.empty() ? "" : ", ") + std::string(each);
  }
  if (!IsThere(folder))
    throw BadData(folder + ": no such folder; IDX data are the files " + all + ", each plain or .gz");
  throw BadData(folder + ": no " + missing + "; IDX data are the files " + all + ", each plain or .gz");
}

void CheckLabels(const IdxPair& pair, int64_t classes) {
  for (size_t i = 0; i < pair.labels().size(); ++i) {
    if (pair.labels()[i] < classes) continue;
    pair.labels_file().Fail("label " + std::to_string(pair.labels()[i]) + " of sample " + std::to_string(i) +
                            " (byte " + std::to_string(kLabelsHeader + i) + "): labels must be below " +
                            std::to_string(classes));
  }
}

int64_t LargestLabel(const IdxPair& pair) {
  return *std::max_element(pair.labels().begin(), pair.labels().end());
}

}  // namespace

std::unique_ptr<Source> OpenIdx(const SourceOptions& options) {
  IdxPair training(PathOf(options.path, kNames[0]), PathOf(options.path, kNames[1]));
  IdxPair test(PathOf(options.path, kNames[2]), PathOf(options.path, kNames[3]));
  if (training.features() != test.features()) {
    training.Explain();
    test.Explain();
    test.images().Fail("its images have " + std::to_string(test.features()) + " pixels, those of " +
                       training.images().path() + " have " + std::to_string(training.features()));
  }
  DatasetPlan plan;
  plan.sample_type = SampleType::kUint8;
  plan.target_type = options.targets;
  plan.scale = 1.0f / 255.0f;
  plan.features = static_cast<int64_t>(training.features());
  if (training.rows() > 0) {
    plan.height = static_cast<int64_t>(training.rows());
    plan.width = static_cast<int64_t>(training.columns());
    plan.channels = 1;
  }
  plan.training = static_cast<int64_t>(training.labels().size());
  plan.test = static_cast<int64_t>(test.labels().size());
  if (options.targets == TargetType::kLabel) {
    plan.classes =
        options.classes > 0 ? options.classes : std::max(LargestLabel(training), LargestLabel(test)) + 1;
    CheckLabels(training, plan.classes);
    CheckLabels(test, plan.classes);
  }
  FinishPlan(options, options.path, &plan);
  return std::make_unique<IdxSource>(plan, std::move(training), std::move(test));
}

}  // namespace lockstep::trainer::data
