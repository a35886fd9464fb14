#include "trainer/tensor/buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "trainer/error.h"

namespace lockstep::trainer {
namespace {

// From here on a buffer is given whole huge pages: hardware prefetch stops at the end of a page, and an
// optimizer's pass over four streams took half the time with huge ones.
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLargeBuffer = kHugePage / 4;
// Of a process on x86-64; a size beyond it is a mistake, and could overflow when rounded up.
constexpr size_t kAddressSpace = size_t{1} << 47;

class Host final : public Allocator {
 public:
  void* Allocate(size_t bytes) override {
    if (bytes == 0) return nullptr;
    const size_t alignment = bytes >= kLargeBuffer ? kHugePage : kBufferAlignment;
    const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    void* pointer = bytes > kAddressSpace ? nullptr : std::aligned_alloc(alignment, rounded);
    if (pointer == nullptr) {
      throw OutOfMemory("host memory: " + std::to_string(bytes) + " bytes cannot be had");
    }
    if (alignment == kHugePage) ::madvise(pointer, rounded, MADV_HUGEPAGE);  // advice: small pages do as well
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
