#include "trainer/data/gzip.h"

#include <libdeflate.h>

#include <memory>
#include <new>

#include "trainer/error.h"

namespace lockstep::trainer::data {
namespace {

constexpr size_t kLeastBytes = 18;   // header and trailer of a member (RFC 1952, 2.3)
constexpr size_t kMostRatio = 1032;  // of deflate: 258 bytes from two bits (zlib's technical notes)

struct FreeDecompressor {
  void operator()(libdeflate_decompressor* decompressor) const { libdeflate_free_decompressor(decompressor); }
};

constexpr char kSeveralMembers[] =
    "has something behind its first gzip member; only one member is read: decompress it, or compress it "
    "again by gzip";

}  // namespace

size_t InflatedSize(std::span<const std::byte> compressed, const std::string& path) {
  if (compressed.size() < kLeastBytes || compressed[0] != std::byte{0x1f} ||
      compressed[1] != std::byte{0x8b}) {
    throw BadData(path + ": not a gzip file");
  }
  uint32_t size = 0;  // ISIZE: little-endian, the last four bytes
  for (size_t i = 1; i <= 4; ++i)
    size = size << 8 | std::to_integer<uint32_t>(compressed[compressed.size() - i]);
  if (size / kMostRatio > compressed.size()) {
    throw BadData(path + ": damaged or cut short: " + std::to_string(compressed.size()) +
                  " bytes cannot hold the " + std::to_string(size) + " that it ends with");
  }
  return size;
}

void Inflate(std::span<const std::byte> compressed, std::span<std::byte> out, const std::string& path) {
  const std::unique_ptr<libdeflate_decompressor, FreeDecompressor> decompressor(
      libdeflate_alloc_decompressor());
  if (decompressor == nullptr) throw std::bad_alloc();
  size_t consumed = 0, produced = 0;
  switch (libdeflate_gzip_decompress_ex(decompressor.get(), compressed.data(), compressed.size(), out.data(),
                                        out.size(), &consumed, &produced)) {
    case LIBDEFLATE_SUCCESS:
      break;
    case LIBDEFLATE_INSUFFICIENT_SPACE:
      throw BadData(path + ": inflates to more than the " + std::to_string(out.size()) +
                    " bytes that it ends with: damaged, or of several gzip members");
    default:
      throw BadData(path + ": damaged: it does not inflate, or its checksum is wrong");
  }
  if (consumed != compressed.size()) throw BadData(path + ": " + kSeveralMembers);
  if (produced != out.size()) {
    throw BadData(path + ": inflates to " + std::to_string(produced) + " bytes where " +
                  std::to_string(out.size()) + " were expected");
  }
}

}  // namespace lockstep::trainer::data
