#include "trainer/backend/cuda/budget.h"

#include <algorithm>

#include "trainer/error.h"

namespace lockstep::trainer::cuda {
namespace {

// Left free by Preallocate for what is not the pool's: libraries load code and take buffers later on. As
// TensorFlow has it for small devices and large ones (gpu_device.cc, MinSystemMemory).
constexpr size_t kSmallDevice = size_t{2} << 30;
constexpr size_t kLeftOnSmall = size_t{225} << 20;
constexpr size_t kLeftAtLeast = size_t{300} << 20;
constexpr size_t kLeftPart = 20;  // a twentieth

size_t Preallocated(size_t free) {
  const size_t left =
      free < kSmallDevice ? std::min(kLeftOnSmall, free / 2) : std::max(kLeftAtLeast, free / kLeftPart);
  return free - left;
}

}  // namespace

std::string_view PolicyName(MemoryPolicy policy) {
  switch (policy) {
    case MemoryPolicy::kGrowth:
      return "Growth";
    case MemoryPolicy::kPreallocate:
      return "Preallocate";
    case MemoryPolicy::kLimit:
      return "Limit";
    case MemoryPolicy::kFraction:
      return "Fraction";
  }
  return "?";
}

size_t LimitOf(const DeviceOptions& options, size_t total, size_t free) {
  if (options.limit < 0 || (options.policy == MemoryPolicy::kLimit && options.limit == 0)) {
    throw Unsupported("device memory: policy Limit needs a limit of more than 0 bytes");
  }
  if (options.fraction < 0 || options.fraction > 1 ||
      (options.policy == MemoryPolicy::kFraction && options.fraction == 0)) {
    throw Unsupported("device memory: a fraction is more than 0 and at most 1; given was " +
                      std::to_string(options.fraction));
  }
  size_t limit = static_cast<size_t>(options.limit);
  const auto tighten = [&](size_t bytes) { limit = limit == 0 ? bytes : std::min(limit, bytes); };
  if (options.fraction > 0) tighten(static_cast<size_t>(options.fraction * static_cast<double>(total)));
  if (options.policy == MemoryPolicy::kPreallocate && limit == 0) tighten(Preallocated(free));
  return limit;
}

void Budget::Take(size_t bytes) {
  if (limit_ > 0 && (bytes > limit_ || used_ > limit_ - bytes)) Refuse(bytes, "");
  used_ += bytes;
  peak_ = std::max(peak_, used_);
}

void Budget::Refuse(size_t bytes, const std::string& found) const {
  std::string message = device_ + ": out of memory: " + std::to_string(bytes) + " bytes were asked for, " +
                        std::to_string(used_) + " are in use, ";
  message += limit_ == 0 ? "no limit is set" : std::to_string(limit_) + " are allowed";
  message += " (policy " + std::string(PolicyName(policy_)) + ")";
  if (!found.empty()) message += "; " + found;
  throw OutOfMemory(message);
}

}  // namespace lockstep::trainer::cuda
