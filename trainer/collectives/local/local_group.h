#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/contract/store.h"
#include "trainer/collectives/communicator.h"
#include "trainer/collectives/local/shared_segment.h"

namespace lockstep::trainer::collectives {

struct LocalGroupOptions {
  int rank = 0;  // among the ranks of this machine
  int size = 1;
  int first_global_rank = 0;         // of the machine's rank 0: messages name global ranks
  contract::Store* store = nullptr;  // used while joining and by CreateSegment; unused when size is 1
  std::string key = "local";         // prefix of the keys; one for each machine and group
  Deadline deadline;                 // for joining
  int threads = 1;                   // that this rank computes with; decides who may spin
};

// The processes of one machine: who they are, whether they live, and how one waits for another. The ground on
// which LocalCommunicator and the shared-memory strategy stand.
//
// Waiting is a short spin, only while no more ranks are awake than there are cores for them, and then a
// futex. A rank that sleeps looks every 100 ms whether its peers live. The first failure anybody finds (a
// dead process, a missed deadline, an Abort) is written down for all: every rank's pending and later waits
// throw CollectiveLost with it.
//
// Ranks may also be threads of one process, each with a group of its own (tests); a destroyed group counts as
// left.
class LocalGroup {
 public:
  // Returns when all ranks have joined. Throws RendezvousFailed naming who is missing, or OutOfMemory.
  static std::unique_ptr<LocalGroup> Join(const LocalGroupOptions& options);
  ~LocalGroup();

  LocalGroup(const LocalGroup&) = delete;
  LocalGroup& operator=(const LocalGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // A further segment, of the same `size` on every rank, zero at first: rank 0 creates it. Collective.
  SharedSegment CreateSegment(std::string_view name, size_t size, Deadline deadline);

  // What a rank waits for. `missing(r)`: rank r has not yet done what is waited for; the wait is over when no
  // rank is missing. Reads shared atomics with memory_order_seq_cst. `operation` goes into messages
  // ("all-reduce").
  using Missing = std::function<bool(int)>;
  void Wait(std::string_view operation, const Missing& missing, Deadline deadline);
  // As above, but also returns (false) as soon as there is something to do meanwhile: `work` does some and
  // says whether it did. Wakes the sleepers. A rank calls it after it has stored, with memory_order_seq_cst,
  // what completes a wait.
  void Wake();

  void Barrier(std::string_view operation, Deadline deadline);

  // Writes down that this rank has failed, for all to see. Any thread.
  void Abort() noexcept;
  // Throws CollectiveLost if anybody has failed.
  void ThrowIfFailed(std::string_view operation);

 private:
  struct Control;
  struct Member;
  LocalGroup() = default;

  int rank_ = 0;
  int size_ = 1;
};

}  // namespace lockstep::trainer::collectives
