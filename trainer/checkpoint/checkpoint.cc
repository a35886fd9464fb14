#include "trainer/checkpoint/checkpoint.h"

#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "trainer/checkpoint/crc32c.h"
#include "trainer/checkpoint/format.h"
#include "trainer/checkpoint/signature.h"

namespace lockstep::trainer::checkpoint {
namespace {

using Bytes = std::span<const std::byte>;

Bytes BytesOf(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }
template <typename T>
Bytes BytesOf(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

Status WriteAll(int fd, std::vector<iovec> parts) {
  for (size_t i = 0; i < parts.size();) {
    const ssize_t n = ::writev(fd, &parts[i], static_cast<int>(parts.size() - i));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Status::FromErrno(errno, "write");
    auto written = static_cast<size_t>(n);
    while (i < parts.size() && written >= parts[i].iov_len) written -= parts[i++].iov_len;
    if (i == parts.size()) break;
    parts[i].iov_base = static_cast<char*>(parts[i].iov_base) + written;
    parts[i].iov_len -= written;
  }
  return {};
}

// Reads one file, bit by bit distrusted.
class Reader {
 public:
  explicit Reader(int fd) : fd_(fd) {}

  Result<Snapshot> Read() {
    LOCKSTEP_RETURN_IF_ERROR(ReadHeader());
    LOCKSTEP_RETURN_IF_ERROR(ReadEntries());
    if (entries_.size() < 3) return InvalidArgument("sections are missing");

    std::string description;
    LOCKSTEP_RETURN_IF_ERROR(
        ReadText(0, SectionKind::kDescription, "description", kMostDescriptionBytes, &description));
    Result<Signature> signature = ParseSignature(description);
    if (!signature.ok()) return InvalidArgument("description: " + signature.status().message());
    Snapshot snapshot;
    snapshot.signature = std::move(*signature);
    snapshot.step = header_.step;
    snapshot.epoch = header_.epoch;
    snapshot.offset = header_.offset;
    snapshot.generation = header_.generation;
    LOCKSTEP_RETURN_IF_ERROR(
        ReadText(1, SectionKind::kMetadata, "metadata", kMostMetadataBytes, &snapshot.metadata));
    if (entries_[2].kind == SectionKind::kParts) {
      LOCKSTEP_RETURN_IF_ERROR(ReadParts(&snapshot.parts));
      return snapshot;
    }

    const auto elements = static_cast<size_t>(snapshot.signature.elements());
    LOCKSTEP_RETURN_IF_ERROR(
        ReadValues(2, SectionKind::kParameters, "parameters", elements, &snapshot.parameters));
    const std::vector<std::string>& slots = snapshot.signature.slots;
    const size_t state = snapshot.signature.state.empty() ? 0 : 1;
    if (entries_.size() != 3 + slots.size() + state) {
      return InvalidArgument("it has not one section for each slot");
    }
    snapshot.slots.resize(slots.size());
    for (size_t i = 0; i < slots.size(); ++i) {
      LOCKSTEP_RETURN_IF_ERROR(
          ReadValues(3 + i, SectionKind::kSlot, "slot " + slots[i], elements, &snapshot.slots[i]));
    }
    if (state == 0) return snapshot;
    LOCKSTEP_RETURN_IF_ERROR(ReadValues(3 + slots.size(), SectionKind::kState, "state",
                                        static_cast<size_t>(snapshot.signature.state_elements()),
                                        &snapshot.state));
    return snapshot;
  }

  Seal seal() const { return {.bytes = header_.file_bytes, .crc = header_.crc}; }

 private:
  Status ReadAt(uint64_t offset, std::span<std::byte> out) {
    while (!out.empty()) {
      const ssize_t n = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return Status::FromErrno(errno, "read");
      if (n == 0) return InvalidArgument("cut short while it was read");
      out = out.subspan(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
    return {};
  }

  Status ReadHeader() {
    struct stat status;
    if (::fstat(fd_, &status) != 0) return Status::FromErrno(errno, "fstat");
    if (!S_ISREG(status.st_mode)) return InvalidArgument("not a regular file");
    const auto size = static_cast<uint64_t>(status.st_size);
    if (size < sizeof header_)
      return InvalidArgument("cut short: " + std::to_string(size) + " bytes, less than a header");
    LOCKSTEP_RETURN_IF_ERROR(ReadAt(0, std::as_writable_bytes(std::span(&header_, 1))));
    if (std::memcmp(header_.magic, kMagic, sizeof kMagic) != 0) return InvalidArgument("not a checkpoint");
    if (header_.version == 0 || header_.version > kVersion) {
      return Unimplemented("format version " + std::to_string(header_.version) +
                           "; this program reads versions up to " + std::to_string(kVersion));
    }
    if (size != header_.file_bytes) {
      return InvalidArgument((size < header_.file_bytes ? "cut short: " : "too long: ") +
                             std::to_string(size) + " of " + std::to_string(header_.file_bytes) + " bytes");
    }
    return {};
  }

  Status ReadEntries() {
    if (header_.sections > kMostSections ||
        sizeof header_ + header_.sections * sizeof(SectionEntry) > header_.file_bytes) {
      return InvalidArgument("header: impossible number of sections");
    }
    entries_.resize(header_.sections);
    LOCKSTEP_RETURN_IF_ERROR(ReadAt(sizeof header_, std::as_writable_bytes(std::span(entries_))));
    if (header_.crc != HeaderCrc(header_, entries_)) return InvalidArgument("header: wrong checksum");
    if (header_.step < 0 || header_.epoch < 0 || header_.offset < 0 || header_.generation < 0) {
      return InvalidArgument("header: a negative count");
    }
    uint64_t end = sizeof header_ + entries_.size() * sizeof(SectionEntry);
    for (const SectionEntry& entry : entries_) {
      if (entry.offset != end || entry.bytes > header_.file_bytes - end) {
        return InvalidArgument("header: sections do not follow one another");
      }
      end += entry.bytes;
    }
    return end == header_.file_bytes ? Status() : InvalidArgument("header: bytes that belong to no section");
  }

  Status ReadSection(size_t index, SectionKind kind, const std::string& name, std::span<std::byte> out) {
    if (entries_[index].kind != kind) return InvalidArgument(name + ": another section is in its place");
    LOCKSTEP_RETURN_IF_ERROR(ReadAt(entries_[index].offset, out));
    return Crc32c(out) == entries_[index].crc ? Status() : InvalidArgument(name + ": wrong checksum");
  }

  Status ReadText(size_t index, SectionKind kind, const std::string& name, size_t most, std::string* text) {
    if (entries_[index].bytes > most) return InvalidArgument(name + ": too long");
    text->resize(entries_[index].bytes);
    return ReadSection(index, kind, name, std::as_writable_bytes(std::span(text->data(), text->size())));
  }

  Status ReadValues(size_t index, SectionKind kind, const std::string& name, size_t elements,
                    std::vector<float>* values) {
    if (entries_[index].bytes != elements * sizeof(float)) {
      return InvalidArgument(name + ": its size is not that of the variables");
    }
    values->resize(elements);
    return ReadSection(index, kind, name, std::as_writable_bytes(std::span(*values)));
  }

  Status ReadParts(std::vector<Seal>* parts) {
    const uint64_t bytes = entries_[2].bytes;
    const uint64_t count = bytes / sizeof(PartEntry);
    if (entries_.size() != 3 || bytes % sizeof(PartEntry) != 0 || count == 0 || count > kMostParts) {
      return InvalidArgument("parts: an impossible number of them");
    }
    std::vector<PartEntry> entries(count);
    LOCKSTEP_RETURN_IF_ERROR(
        ReadSection(2, SectionKind::kParts, "parts", std::as_writable_bytes(std::span(entries))));
    for (const PartEntry& entry : entries) parts->push_back({.bytes = entry.bytes, .crc = entry.crc});
    return {};
  }

  int fd_;
  FileHeader header_;
  std::vector<SectionEntry> entries_;
};

Status CheckFits(const Snapshot& snapshot) {
  const Signature& signature = snapshot.signature;
  const bool here = snapshot.parts.empty();
  const auto elements = here ? static_cast<size_t>(signature.elements()) : 0;
  bool fits = snapshot.parameters.size() == elements &&
              snapshot.state.size() == (here ? static_cast<size_t>(signature.state_elements()) : 0) &&
              snapshot.slots.size() == (here ? signature.slots.size() : 0) &&
              snapshot.slots.size() + 4 <= kMostSections && snapshot.metadata.size() <= kMostMetadataBytes &&
              snapshot.parts.size() <= kMostParts && snapshot.step >= 0 && snapshot.epoch >= 0 &&
              snapshot.offset >= 0 && snapshot.generation >= 0;
  for (const std::vector<float>& slot : snapshot.slots) fits = fits && slot.size() == elements;
  return fits ? Status() : InvalidArgument("the snapshot does not fit its signature");
}

}  // namespace

uint32_t HeaderCrc(FileHeader header, std::span<const SectionEntry> entries) {
  header.crc = 0;
  return Crc32c(std::as_bytes(entries), Crc32c(std::as_bytes(std::span(&header, 1))));
}

Result<Seal> WriteSnapshot(int fd, const Snapshot& snapshot) {
  LOCKSTEP_RETURN_IF_ERROR(CheckFits(snapshot));
  const std::string description = EncodeSignature(snapshot.signature);
  if (description.size() > kMostDescriptionBytes) return InvalidArgument("the signature is too long");

  std::vector<std::pair<SectionKind, Bytes>> sections = {
      {SectionKind::kDescription, BytesOf(description)},
      {SectionKind::kMetadata, BytesOf(snapshot.metadata)}};
  uint32_t version = kVersionWithoutState;
  std::vector<PartEntry> part_entries;
  for (const Seal& part : snapshot.parts) part_entries.push_back({.bytes = part.bytes, .crc = part.crc});
  if (!part_entries.empty()) {
    version = kVersion;
    sections.emplace_back(SectionKind::kParts, BytesOf(part_entries));
  } else {
    sections.emplace_back(SectionKind::kParameters, BytesOf(snapshot.parameters));
    for (const std::vector<float>& slot : snapshot.slots) {
      sections.emplace_back(SectionKind::kSlot, BytesOf(slot));
    }
    if (!snapshot.signature.state.empty()) {
      version = kVersionWithoutParts;
      sections.emplace_back(SectionKind::kState, BytesOf(snapshot.state));
    }
  }

  std::vector<SectionEntry> entries;
  uint64_t end = sizeof(FileHeader) + sections.size() * sizeof(SectionEntry);
  for (const auto& [kind, bytes] : sections) {
    entries.push_back({.kind = kind, .crc = Crc32c(bytes), .offset = end, .bytes = bytes.size()});
    end += bytes.size();
  }
  FileHeader header{.version = version,
                    .sections = static_cast<uint32_t>(sections.size()),
                    .file_bytes = end,
                    .step = snapshot.step,
                    .epoch = snapshot.epoch,
                    .offset = snapshot.offset,
                    .generation = snapshot.generation};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.crc = HeaderCrc(header, entries);

  std::vector<iovec> parts = {{&header, sizeof header},
                              {entries.data(), entries.size() * sizeof(SectionEntry)}};
  for (const auto& [kind, bytes] : sections)
    parts.push_back({const_cast<std::byte*>(bytes.data()), bytes.size()});
  LOCKSTEP_RETURN_IF_ERROR(WriteAll(fd, std::move(parts)));
  return Seal{.bytes = header.file_bytes, .crc = header.crc};
}

Result<Snapshot> ReadSnapshot(int fd, Seal* seal) {
  Reader reader(fd);
  Result<Snapshot> snapshot = reader.Read();
  if (seal != nullptr) *seal = reader.seal();
  return snapshot;
}

}  // namespace lockstep::trainer::checkpoint
