#include "trainer/tensor/buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

class Host final : public Allocator {
 public:
  void* Allocate(size_t bytes) override {
    if (bytes == 0) return nullptr;
    const size_t rounded = (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
    void* pointer = rounded < bytes ? nullptr : std::aligned_alloc(kBufferAlignment, rounded);
    if (pointer == nullptr)
      throw OutOfMemory("host memory: " + std::to_string(bytes) + " bytes cannot be had");
    return pointer;
  }
  void Free(void* pointer, size_t) noexcept override { std::free(pointer); }
};

}  // namespace

Allocator& HostAllocator() {
  static Host host;
  return host;
}

Buffer ZeroedHostBuffer(size_t bytes) {
  Buffer buffer(HostAllocator(), bytes);
  if (bytes > 0) std::memset(buffer.data(), 0, bytes);
  return buffer;
}

}  // namespace lockstep::trainer
