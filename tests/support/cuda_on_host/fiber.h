#pragma once

#include <cstddef>

// A stack of its own that a thread can leave in the middle and come back to. One thread only.
namespace lockstep::cuda_on_host {

class Fiber {
 public:
  // `main` runs at the first Enter; it must not return, but Leave when it has nothing to do.
  explicit Fiber(void (*main)(void* argument), void* argument);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void Enter();  // from the thread's own stack; returns at Leave
  void Leave();  // from the fiber

 private:
  static void Start(Fiber* fiber);

  void (*main_)(void*);
  void* argument_;
  std::byte* memory_ = nullptr;  // the stack, behind a page that must not be touched
  void* stack_pointer_ = nullptr;
  void* outside_ = nullptr;  // the stack pointer of who entered
  // Of the sanitizers.
  void* fake_stack_ = nullptr;
  void* outside_fake_stack_ = nullptr;
  const void* outside_bottom_ = nullptr;
  size_t outside_size_ = 0;
  void* tsan_ = nullptr;
  void* outside_tsan_ = nullptr;
};

}  // namespace lockstep::cuda_on_host
