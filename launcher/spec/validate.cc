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

// "4 or 8", the sizes nearest to `world_size` that divide `batch_size`, as far as is searched.
std::string NearestDivisors(int64_t batch_size, int64_t world_size) {
  int64_t below = std::min(world_size, batch_size);
  for (int64_t tries = kSearched; batch_size % below != 0; --below) {
    if (--tries == 0) below = 2;  // then 1, which always does
  }
  const int64_t end = std::min(batch_size - world_size, kSearched);
  int64_t more = 1;
  while (more < end && batch_size % (world_size + more) != 0) ++more;
  const bool found = more <= end && batch_size % (world_size + more) == 0;
  return std::to_string(below) + (found ? " or " + std::to_string(world_size + more) : "");
}

}  // namespace

Status CheckBatchDivides(int64_t batch_size, int64_t world_size) {
  if (batch_size < 1 || world_size < 1)
    return InvalidArgument("a batch and its processes are at least 1 each");
  if (batch_size % world_size == 0) return {};
  const int64_t less = batch_size - batch_size % world_size;
  std::string batches = less > 0 ? std::to_string(less) : "";
  if (less <= INT64_MAX - world_size) batches += (less > 0 ? " or " : "") + std::to_string(less + world_size);
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
