#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "trainer/tensor/dtype.h"

namespace lockstep::trainer {

// Every buffer starts on a cache line, which is also the widest vector register.
inline constexpr size_t kBufferAlignment = 64;

// `offset` bytes into `memory`.
inline std::byte* At(void* memory, size_t offset) { return static_cast<std::byte*>(memory) + offset; }

constexpr size_t RoundUp(size_t value, size_t to) { return (value + to - 1) / to * to; }

// Memory of one device. Limits, pools and statistics are adaptors around another allocator. Safe to use from
// several threads. An allocator outlives its buffers.
class Allocator {
 public:
  virtual ~Allocator() = default;
  // At least `bytes` bytes, aligned to kBufferAlignment, contents undefined. Throws OutOfMemory, which names
  // the size; nullptr only for 0 bytes.
  virtual void* Allocate(size_t bytes) = 0;
  // `pointer` is what Allocate(bytes) returned.
  virtual void Free(void* pointer, size_t bytes) noexcept = 0;
};

// The process's own memory. Stateless.
Allocator& HostAllocator();

// Owns memory of an allocator. Move-only; an empty one owns nothing.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Allocator& allocator, size_t bytes)
      : allocator_(&allocator), data_(allocator.Allocate(bytes)), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept
      : allocator_(other.allocator_),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    if (this == &other) return *this;
    Release();
    allocator_ = other.allocator_;
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  ~Buffer() { Release(); }

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  template <typename T>
  std::span<T> span() const {
    return {as<T>(), bytes_ / sizeof(T)};
  }

 private:
  void Release() noexcept {
    if (data_ != nullptr) allocator_->Free(data_, bytes_);
  }

  Allocator* allocator_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// A buffer of host memory filled with zeros.
Buffer ZeroedHostBuffer(size_t bytes);

}  // namespace lockstep::trainer
