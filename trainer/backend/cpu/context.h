#pragma once

#include <cstddef>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include "trainer/backend/cpu/layer_loops.h"
#include "trainer/backend/cpu/vector_kernels.h"
#include "trainer/tensor/buffer.h"

namespace lockstep::trainer::cpu {

// What the kernels of one CpuBackend share. One thread at a time.
class Context {
 public:
  explicit Context(int threads);

  const dnnl::engine& engine() const { return engine_; }
  const dnnl::stream& stream() const { return stream_; }
  const VectorKernels& kernels() const { return *kernels_; }
  const LayerLoops& loops() const { return *loops_; }
  int threads() const { return threads_; }
  std::string description() const;

  // oneDNN's scratch memory, shared because kernels run one after another. Grows, and then moves: take
  // scratchpad() anew for each execution.
  void ReserveScratchpad(size_t bytes);
  void* scratchpad() const { return scratchpad_.data(); }

 private:
  int threads_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  const VectorKernels* kernels_;
  const LayerLoops* loops_;
  Buffer scratchpad_;
};

dnnl::memory::data_type DnnlType(DataType type);

// Runs `call`, turning oneDNN's exceptions into those of trainer/error.h; `what` says the operation.
template <typename Call>
auto Guard(const std::string& what, Call&& call);

[[noreturn]] void ThrowDnnlError(const std::string& what, const dnnl::error& error);

template <typename Call>
auto Guard(const std::string& what, Call&& call) {
  try {
    return call();
  } catch (const dnnl::error& error) {
    ThrowDnnlError(what, error);
  }
}

}  // namespace lockstep::trainer::cpu
