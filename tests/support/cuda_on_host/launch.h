#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/support/cuda_on_host/block.h"

namespace lockstep::cuda_on_host {

// Of a kernel that runs later. `pointers` are its arguments that are pointers: each must be null or into
// memory that the device can reach when the kernel runs. Failure becomes the calling thread's last error.
void EnqueueKernel(const char* name, const Grid& grid, cudaStream_t stream,
                   std::span<const void* const> pointers, std::function<void()> thread_body);

// kernel<<<blocks, threads, shared, stream>>>(arguments…): the arguments are converted and copied now.
template <typename... Parameters, typename... Arguments>
void Launch(const char* name, void (*kernel)(Parameters...), dim3 blocks, dim3 threads, size_t shared,
            cudaStream_t stream, Arguments&&... arguments) {
  std::tuple<std::remove_cvref_t<Parameters>...> values(std::forward<Arguments>(arguments)...);
  std::array<const void*, sizeof...(Parameters) + 1> pointers{};
  size_t count = 0;
  std::apply(
      [&](const auto&... value) {
        (
            [&] {
              if constexpr (std::is_pointer_v<std::remove_cvref_t<decltype(value)>>)
                pointers[count++] = value;
            }(),
            ...);
      },
      values);
  EnqueueKernel(name, {.blocks = blocks, .threads = threads, .dynamic_shared = shared}, stream,
                std::span(pointers).first(count),
                [kernel, values = std::move(values)] { std::apply(kernel, values); });
}

}  // namespace lockstep::cuda_on_host
