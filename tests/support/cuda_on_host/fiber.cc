#include "tests/support/cuda_on_host/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace lockstep::cuda_on_host {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kStack = size_t{256} << 10;

}  // namespace

// void SwitchStack(void** save, void* to): pushes what a function must keep, saves the stack pointer, takes
// the other one, pops. (swapcontext does the same with two system calls, which makes a warp's shuffle cost
// microseconds.)
extern "C" void lockstep_switch_stack(void** save, void* to);
#if defined(__x86_64__)
asm(R"(
.text
.globl lockstep_switch_stack
.hidden lockstep_switch_stack
.type lockstep_switch_stack, @function
lockstep_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size lockstep_switch_stack, .-lockstep_switch_stack
)");
constexpr size_t kSaved = 6;  // registers
#else
#error "the host stand-in for CUDA switches stacks on x86-64 only"
#endif

namespace {

// What a fresh fiber "returns" into: its Fiber is in the place of a kept register.
extern "C" void lockstep_fiber_entry();
#if defined(__x86_64__)
asm(R"(
.text
.globl lockstep_fiber_entry
.hidden lockstep_fiber_entry
.type lockstep_fiber_entry, @function
lockstep_fiber_entry:
  movq %rbx, %rdi
  xorl %ebp, %ebp
  call *%r12
  ud2
.size lockstep_fiber_entry, .-lockstep_fiber_entry
)");
#endif

}  // namespace

Fiber::Fiber(void (*main)(void*), void* argument) : main_(main), argument_(argument) {
  void* memory = ::mmap(nullptr, kPage + kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || ::mprotect(memory, kPage, PROT_NONE) != 0) {
    std::perror("cuda_on_host: the stack of a kernel's thread");
    std::abort();
  }
  memory_ = static_cast<std::byte*>(memory);
  auto** top = reinterpret_cast<void**>(memory_ + kPage + kStack);
  // From below: r15 r14 r13 r12 rbx rbp, the return address; the stack is aligned when entry calls.
  *--top = nullptr;
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&lockstep_fiber_entry);
  *--top = nullptr;                                 // rbp
  *--top = this;                                    // rbx
  *--top = reinterpret_cast<void*>(&Fiber::Start);  // r12
  for (size_t i = 3; i < kSaved; ++i) *--top = nullptr;
  stack_pointer_ = top;
#if defined(__SANITIZE_THREAD__)
  tsan_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(tsan_);
#endif
#if defined(__SANITIZE_ADDRESS__)
  // Whoever is given the place next must not inherit what was forbidden on the stack.
  __asan_unpoison_memory_region(memory_ + kPage, kStack);
#endif
  ::munmap(memory_, kPage + kStack);
}

void Fiber::Start(Fiber* fiber) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &fiber->outside_bottom_, &fiber->outside_size_);
#endif
  fiber->main_(fiber->argument_);
}

void Fiber::Enter() {
#if defined(__SANITIZE_THREAD__)
  outside_tsan_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_, 0);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&outside_fake_stack_, memory_ + kPage, kStack);
#endif
  lockstep_switch_stack(&outside_, stack_pointer_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(outside_fake_stack_, nullptr, nullptr);
#endif
}

void Fiber::Leave() {
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(outside_tsan_, 0);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&fake_stack_, outside_bottom_, outside_size_);
#endif
  lockstep_switch_stack(&stack_pointer_, outside_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack_, &outside_bottom_, &outside_size_);
#endif
}

}  // namespace lockstep::cuda_on_host
