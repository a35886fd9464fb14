#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "common/contract/store.h"
#include "common/unique_fd.h"

namespace lockstep::trainer::collectives {

// Memory that the processes of one machine share: an anonymous file in memory (memfd) that one of them
// creates and the others open through /proc/PID/fd/N. There is no name to leak and no limit of /dev/shm to
// meet; the memory goes when the last process that maps it ends, however it ends. Its size is sealed, so a
// peer cannot make an access fault.
//
// Move-only. Safe to read and write from all processes at once as far as the contents allow it (atomics).
class SharedSegment {
 public:
  SharedSegment() = default;
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;
  ~SharedSegment();

  // `size` bytes, zero, page-aligned. Throws OutOfMemory.
  static SharedSegment Create(std::string_view name, size_t size);

  // Tells the store where this segment is; it must live until every peer has attached.
  // Throws RendezvousFailed.
  void Publish(contract::Store& store, std::string_view key, contract::Store::Deadline deadline) const;

  // Waits for the key and maps what it names. Throws RendezvousFailed (not there in time, its process is
  // gone, not of `size` bytes, not in this PID namespace) or OutOfMemory.
  static SharedSegment Attach(contract::Store& store, std::string_view key, size_t size,
                              contract::Store::Deadline deadline);

  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(address_), size_}; }
  std::byte* data() const { return static_cast<std::byte*>(address_); }
  size_t size() const { return size_; }
  // Views a part of it as `count` objects; `offset` must be aligned for T.
  template <typename T>
  std::span<T> View(size_t offset, size_t count) const {
    return {reinterpret_cast<T*>(data() + offset), count};
  }

 private:
  SharedSegment(UniqueFd fd, void* address, size_t size)
      : fd_(std::move(fd)), address_(address), size_(size) {}
  static SharedSegment Map(UniqueFd fd, size_t size);

  UniqueFd fd_;
  void* address_ = nullptr;
  size_t size_ = 0;
};

}  // namespace lockstep::trainer::collectives
