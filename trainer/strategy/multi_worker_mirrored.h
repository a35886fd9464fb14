#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "trainer/strategy/replicated.h"

namespace lockstep::trainer::strategy {

// Several machines, each with one copy of the parameters that its ranks share. The flat buffers are cut into
// buckets at the borders of variables, the same everywhere. Of each bucket a rank owns a part. As a bucket is
// complete on all ranks of the machine, the owner's communication thread sums its part over them and
// all-reduces it with the ranks of the other machines that own the same part, behind the rest of the backward
// pass; the main thread updates the parameters with what has come back. The order of buckets is the same
// everywhere, and so is every sum.
//
// With one rank a machine, this is also data parallelism over Gloo alone.
class MultiWorkerMirrored final : public Replicated {
 public:
  using Replicated::Replicated;
  ~MultiWorkerMirrored() override;

 protected:
  StepResult Step(const Batch& batch) override;
  void Prepare() override;

 private:
  using Clock = std::chrono::steady_clock;

  collectives::Range MyPart(size_t bucket) const;
  void Announce(size_t end);
  bool UpdateSome();
  void Communicate();
  void CommunicateStep();
  void ThrowIfThreadFailed();

  std::vector<collectives::Range> buckets_;
  size_t updated_ = 0;  // buckets of this step whose part this rank has updated
  Clock::duration updating_{};

  // The communication thread works on one step at a time, from the main thread's Start to its own end. What
  // it reads of the strategy (turn_, step_) does not change meanwhile.
  std::atomic<size_t> reduced_{0};  // buckets of this step whose part has the sum over all ranks
  std::atomic<bool> ended_{true};   // it is through with the step, or has failed
  std::mutex mutex_;                // guards the three below
  std::condition_variable changed_;
  bool begin_ = false, quit_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace lockstep::trainer::strategy
