#include "launcher/spec/validate.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "launcher/spec/enums.h"
#include "launcher/spec/quote.h"
#include "launcher/spec/rules.h"

namespace lockstep::spec {

namespace {

constexpr int64_t kSearched = 1 << 20;

// "128 or 64", the sizes nearest to `world_size` that divide `batch_size`.
std::string NearestDivisors(int64_t batch_size, int64_t world_size) {
  int64_t below = std::min(world_size, batch_size);
  while (below > 1 && batch_size % below != 0) --below;
  int64_t above = world_size + 1;
  const int64_t end = std::min(batch_size, world_size + kSearched);
  while (above < end && batch_size % above != 0) ++above;
  const bool has_above = above <= end && batch_size % above == 0;
  return std::to_string(below) + (has_above ? " or " + std::to_string(above) : "");
}

}  // namespace

Status CheckBatchDivides(int64_t batch_size, int64_t world_size) {
  if (batch_size < 1 || world_size < 1)
    return InvalidArgument("a batch and its processes are at least 1 each");
  if (batch_size % world_size == 0) return {};
  const int64_t less = batch_size / world_size * world_size;
  const std::string batches =
      (less > 0 ? std::to_string(less) + " or " : "") + std::to_string(less + world_size);
  return InvalidArgument("a batch of " + std::to_string(batch_size) + " is not divisible by " +
                         std::to_string(world_size) + " processes; " +
                         NearestDivisors(batch_size, world_size) + " processes would divide it, and " +
                         std::to_string(world_size) + " processes a batch of " + batches);
}

std::vector<Finding> Validate(const TrainingJob& job) {
  std::vector<Finding> findings;
  CheckRoles(job, &findings);
  CheckStrategy(job, &findings);
  if (job.trainer) CheckTrainer(job, *job.trainer, &findings);
  CheckPrograms(job, &findings);
  CheckRun(job, &findings);
  return findings;
}

}  // namespace lockstep::spec
