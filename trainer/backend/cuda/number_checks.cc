#include "trainer/backend/cuda/number_checks.h"

#include <bit>
#include <string>

#include "trainer/error.h"

namespace lockstep::trainer::cuda {

void NumberChecks::Look() const {
  for (const Check* check : checks_) {
    const uint64_t report = *check->report;
    if (report == kNone) continue;
    throw BadData("sample " + std::to_string(static_cast<int64_t>(report >> 32) / check->positions) +
                  " of the batch has the number " +
                  std::to_string(std::bit_cast<float>(static_cast<uint32_t>(report))) +
                  "; the Embedding has entries 0 to " + std::to_string(check->entries - 1));
  }
}

}  // namespace lockstep::trainer::cuda
