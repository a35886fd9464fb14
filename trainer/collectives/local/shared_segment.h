#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "common/contract/store.h"

namespace lockstep::trainer::collectives {

// Memory that the processes of one machine share: an anonymous file in memory (memfd) that one of them
// creates and the others open through /proc/PID/fd/N. There is no name to leak and no limit of /dev/shm to
// meet; the memory goes when the last process that maps it ends, however it ends. Its size is sealed, so a
// peer cannot make an access fault.
//
// A handle; copies are the same memory, which is unmapped with the last of them.
class SharedSegment {
 public:
  SharedSegment() = default;

  // `size` > 0 bytes, zero, page-aligned; `resident`: taken at once and in huge pages where the kernel grants
  // them, else as they are touched. Throws OutOfMemory.
  static SharedSegment Create(std::string_view name, size_t size, bool resident = true);

  // Tells the store where this segment is; it must live until every peer has attached. Throws
  // RendezvousFailed.
  void Publish(contract::Store& store, std::string_view key, contract::Store::Deadline deadline) const;

  // Waits for the key and maps what it names. Throws RendezvousFailed (not there in time, its process is gone
  // or in another PID namespace, not of `size` bytes) or OutOfMemory.
  static SharedSegment Attach(contract::Store& store, std::string_view key, size_t size,
                              contract::Store::Deadline deadline, bool resident = true);

  explicit operator bool() const { return mapping_ != nullptr; }
  std::byte* data() const;
  size_t size() const;
  // Gives back the memory of the pages that lie wholly in `part` of the segment, for all who map it; they
  // read as zeros.
  void Discard(std::span<const std::byte> part) const noexcept;
  // A part of it as `count` objects; `offset` must be aligned for T.
  template <typename T>
  std::span<T> View(size_t offset, size_t count) const {
    return {reinterpret_cast<T*>(data() + offset), count};
  }

 private:
  struct Mapping;
  std::shared_ptr<const Mapping> mapping_;
};

// For ranks that are threads of one process (tests): hands all of them the same mapping of a segment, so that
// a thread sanitizer sees who touches what. Safe for threads.
class InProcessSegments {
 public:
  void Put(std::string_view key, const SharedSegment& segment);
  // Empty if nobody has put it.
  SharedSegment Find(std::string_view key) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, SharedSegment, std::less<>> segments_;
};

}  // namespace lockstep::trainer::collectives
