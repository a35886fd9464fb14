#pragma once

#include <utility>

namespace lockstep::trainer::cuda {

// Owns a handle of a vendor's library. Traits has
//   using Handle = …;  // Handle{} is empty
//   static void Destroy(Handle handle) noexcept;
template <typename Traits>
class UniqueHandle {
 public:
  using Handle = typename Traits::Handle;

  UniqueHandle() = default;
  explicit UniqueHandle(Handle handle) : handle_(handle) {}
  UniqueHandle(UniqueHandle&& other) noexcept : handle_(std::exchange(other.handle_, Handle{})) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    if (this != &other) Reset(std::exchange(other.handle_, Handle{}));
    return *this;
  }
  ~UniqueHandle() { Reset(); }

  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != Handle{}; }
  Handle Release() { return std::exchange(handle_, Handle{}); }
  void Reset(Handle handle = Handle{}) noexcept {
    if (handle_ != Handle{}) Traits::Destroy(handle_);
    handle_ = handle;
  }
  // For functions that write a new handle through a pointer; what was owned is destroyed first.
  Handle* Receive() {
    Reset();
    return &handle_;
  }

 private:
  Handle handle_{};
};

}  // namespace lockstep::trainer::cuda
