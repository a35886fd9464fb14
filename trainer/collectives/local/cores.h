#pragma once

#include <cstdint>
#include <span>

namespace lockstep::trainer::collectives {

inline constexpr int kCpuMaskWords = 16;  // 1,024 cores

// The cores that the calling thread may run on, a bit each; all bits of the first word if that cannot be
// told.
void ReadAffinity(std::span<uint64_t, kCpuMaskWords> mask);

// How many cores' worth of time the control group grants (both versions' quotas, as seen from inside);
// INT_MAX: no limit.
int CgroupCores();

}  // namespace lockstep::trainer::collectives
