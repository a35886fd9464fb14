#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "trainer/data/source.h"
#include "trainer/error.h"

// Files of the formats that trainer/data reads, good and bad ones, as strings of their bytes.
namespace lockstep::trainer::data {

inline std::string BigEndian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

inline std::string LittleEndian(uint32_t value) {
  const std::string big = BigEndian(value);
  return {big.rbegin(), big.rend()};
}

inline std::string IdxLabels(const std::vector<int>& labels) {
  std::string file = BigEndian(0x801) + BigEndian(static_cast<uint32_t>(labels.size()));
  for (const int label : labels) file += static_cast<char>(label);
  return file;
}

// Pixel p of image i is (10 i + p) mod 256.
inline std::string IdxImages(int count, int rows, int columns) {
  std::string file = BigEndian(0x803) + BigEndian(count) + BigEndian(rows) + BigEndian(columns);
  for (int i = 0; i < count; ++i) {
    for (int p = 0; p < rows * columns; ++p) file += static_cast<char>(10 * i + p);
  }
  return file;
}

// One gzip member (RFC 1952) of stored blocks (RFC 1951, 3.2.4).
inline std::string Gzip(const std::string& text) {
  std::string file("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10);
  uint32_t crc = ~0u;
  for (const char c : text) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
  }
  for (size_t at = 0;;) {
    const std::string block = text.substr(at, 65535);
    at += block.size();
    file += static_cast<char>(at == text.size());
    const auto size = static_cast<uint32_t>(block.size());
    file += LittleEndian(size | (~size << 16)) + block;
    if (at == text.size()) break;
  }
  return file + LittleEndian(~crc) + LittleEndian(static_cast<uint32_t>(text.size()));
}

// A loaded source.
class Loaded {
 public:
  explicit Loaded(const SourceOptions& options)
      : source_(Source::Open(options)), block_(source_->plan().block_bytes()) {
    source_->LoadInto(block_.bytes());
  }

  DatasetView view() const { return DatasetView::FromBlock(block_.bytes()); }

 private:
  std::unique_ptr<Source> source_;
  OwnedBlock block_;
};

// What BadData says when the source is opened or loaded; empty when it is fine.
inline std::string Complaint(const SourceOptions& options) {
  try {
    Loaded loaded(options);
    loaded.view();
    return {};
  } catch (const BadData& error) {
    return error.what();
  }
}

inline std::vector<int32_t> LabelsOf(const DatasetView& view, Range range) {
  std::vector<int32_t> labels(range.count);
  view.GatherLabels(range, labels.data());
  return labels;
}

inline std::vector<float> FeaturesOf(const DatasetView& view, Range range) {
  std::vector<float> features(range.count * view.features());
  view.Gather(range, features.data());
  return features;
}

}  // namespace lockstep::trainer::data
