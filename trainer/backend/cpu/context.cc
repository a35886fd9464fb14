#include "trainer/backend/cpu/context.h"

#include <omp.h>

#include <cstdlib>

#include "trainer/error.h"

namespace lockstep::trainer::cpu {
namespace {

int ThreadsToUse(int asked) {
  if (asked > 0) return asked;
  return std::getenv("OMP_NUM_THREADS") != nullptr ? omp_get_max_threads() : 1;
}

const char* IsaName(dnnl::cpu_isa isa) {
  switch (isa) {
    case dnnl::cpu_isa::sse41:
      return "SSE4.1";
    case dnnl::cpu_isa::avx:
      return "AVX";
    case dnnl::cpu_isa::avx2:
      return "AVX2";
    case dnnl::cpu_isa::avx2_vnni:
      return "AVX2 VNNI";
    case dnnl::cpu_isa::avx512_core:
      return "AVX-512";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "AVX-512 VNNI";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "AVX-512 BF16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "AMX";
    default:
      return "another instruction set";
  }
}

}  // namespace

// (oneDNN takes its threads from OpenMP, whose number is the calling thread's own.)
Context::Context(int threads)
    : threads_(ThreadsToUse(threads)),
      engine_(dnnl::engine::kind::cpu, 0),
      stream_(engine_),
      kernels_(&KernelsFor(BestIsa())),
      loops_(&LoopsFor(BestIsa())) {
  omp_set_num_threads(threads_);
}

std::string Context::description() const {
  const dnnl_version_t* version = dnnl_version();
  return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch) + ", " + IsaName(dnnl::get_effective_cpu_isa()) + ", " +
         std::to_string(threads_) + (threads_ == 1 ? " thread" : " threads");
}

void Context::ReserveScratchpad(size_t bytes) {
  if (bytes > scratchpad_.bytes()) scratchpad_ = Buffer(HostAllocator(), bytes);
}

dnnl::memory::data_type DnnlType(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return dnnl::memory::data_type::f32;
    case DataType::kBFloat16:
      return dnnl::memory::data_type::bf16;
    case DataType::kInt32:
      return dnnl::memory::data_type::s32;
    case DataType::kUInt8:
      return dnnl::memory::data_type::u8;
  }
  return dnnl::memory::data_type::undef;
}

void ThrowDnnlError(const std::string& what, const dnnl::error& error) {
  if (error.status == dnnl_out_of_memory) throw OutOfMemory(what + ": " + error.what());
  throw Unsupported(what + " on CPU: " + error.what());
}

}  // namespace lockstep::trainer::cpu
