#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

// A checkpoint's bytes: FileHeader, then header.sections × SectionEntry, then the sections one after another
// in the order of their entries, nothing in between and nothing behind. Little-endian.
//   description: JSON of the signature · metadata: the caller's text · parameters, slots: float32 ·
//   state (from version 2 on): float32
//   parts (from version 3 on; then none of the values): PartEntry, one for each part
// Each is written as the lowest version that has what it needs, which older programs read as well.
namespace lockstep::trainer::checkpoint {

static_assert(std::endian::native == std::endian::little, "checkpoints are little-endian");

// The line ending shows a transfer as text, which would have changed it.
inline constexpr char kMagic[8] = {'L', 'S', 'C', 'K', 'P', 'T', '\r', '\n'};
inline constexpr uint32_t kVersion = 3;
inline constexpr uint32_t kVersionWithoutParts = 2;
inline constexpr uint32_t kVersionWithoutState = 1;

inline constexpr size_t kMostSections = 64;
inline constexpr size_t kMostDescriptionBytes = size_t{4} << 20;
inline constexpr size_t kMostMetadataBytes = size_t{1} << 20;
inline constexpr size_t kMostParts = 100'000;

struct FileHeader {
  char magic[8] = {};
  uint32_t version = 0;
  uint32_t sections = 0;
  uint64_t file_bytes = 0;
  int64_t step = 0;
  int64_t epoch = 0;
  int64_t offset = 0;
  int64_t generation = 0;
  uint32_t reserved = 0;
  uint32_t crc = 0;  // of this header with crc 0, and of the entries
};
static_assert(sizeof(FileHeader) == 64 && std::is_trivially_copyable_v<FileHeader>);

enum class SectionKind : uint32_t {
  kDescription = 1,
  kMetadata = 2,
  kParameters = 3,
  kSlot = 4,
  kState = 5,
  kParts = 6
};

struct SectionEntry {
  SectionKind kind = {};
  uint32_t crc = 0;  // of the section
  uint64_t offset = 0;
  uint64_t bytes = 0;
};
static_assert(sizeof(SectionEntry) == 24 && std::is_trivially_copyable_v<SectionEntry>);

// The seal of a part.
struct PartEntry {
  uint64_t bytes = 0;
  uint32_t crc = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(PartEntry) == 16 && std::is_trivially_copyable_v<PartEntry>);

uint32_t HeaderCrc(FileHeader header, std::span<const SectionEntry> entries);

}  // namespace lockstep::trainer::checkpoint
