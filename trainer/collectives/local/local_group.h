#pragma once

#include <climits>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract/store.h"
#include "common/unique_fd.h"
#include "trainer/collectives/communicator.h"
#include "trainer/collectives/local/shared_segment.h"

namespace lockstep::trainer::collectives {

struct LocalGroupOptions {
  int rank = 0;  // among the ranks of this machine
  int size = 1;
  int first_rank = 0;                // global rank of the machine's rank 0: messages name global ranks
  int rank_stride = 1;               // from one global rank to the next
  contract::Store* store = nullptr;  // used by Join and CreateSegment; none needed when size is 1
  std::string key = "local";         // prefix of the keys; another for each machine, and for each group on it
  int threads = 1;                   // that a rank computes with
  Deadline deadline;                 // for joining
  InProcessSegments* segments = nullptr;  // ranks are threads of this process (tests)
};

// The processes of one machine: who they are, whether they live, and how one waits for another. The ground on
// which LocalCommunicator and the strategies stand.
//
// To wait is to spin for a short while, only as long as no more ranks are awake than there are cores for, and
// then to sleep on a futex. A rank that waits looks ten times a second whether its peers live. The first
// failure that anybody finds (a dead process, a rank that left, a missed deadline, an Abort) is written down
// for all: the pending and later waits of every rank throw CollectiveLost with it.
//
// Threads: one that calls everything, and beside it one that may Wait as kHelper; Wake, Abort and
// ThrowIfFailed from any.
class LocalGroup {
 public:
  // Returns when all ranks have come. Throws RendezvousFailed naming who has not, or OutOfMemory.
  static std::unique_ptr<LocalGroup> Join(const LocalGroupOptions& options);
  // Counts as leaving: peers that still wait for this rank fail.
  ~LocalGroup();

  LocalGroup(const LocalGroup&) = delete;
  LocalGroup& operator=(const LocalGroup&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }

  // Collective: a segment of `size` bytes, the same on every rank, zero at first. Returns when all have
  // mapped it. Throws RendezvousFailed, OutOfMemory, CollectiveLost.
  SharedSegment CreateSegment(std::string_view name, size_t size, Deadline deadline, bool resident = true);

  // What a waiting rank finds when it looks: kIdle to go on waiting, kProgress to look again at once (it did
  // some work meanwhile), kDone to return. It reads what other ranks publish with memory_order_seq_cst.
  enum class Look { kIdle, kProgress, kDone };
  // A rank's second thread waits as kHelper: one that serves in the background and never spins.
  enum class Waiter { kMain, kHelper };
  // Waits until look() says kDone. `missing(r)`: local rank r is being waited for; for messages. `operation`:
  // what for ("all-reduce of step 3").
  void Wait(std::string_view operation, const std::function<Look()>& look,
            const std::function<bool(int)>& missing, Deadline deadline, Waiter waiter = Waiter::kMain);
  // Wakes whoever sleeps, or `most` of them, at next to no cost when nobody does. To be called after
  // publishing, with memory_order_seq_cst, what ends a wait or gives a waiting rank something to do.
  void Wake(int most = INT_MAX) noexcept;
  // How many ranks do not sleep.
  int awake() const;
  // How many ranks can compute at once on the cores this rank may use, at least 1.
  int room() const { return room_; }

  void Barrier(std::string_view operation, Deadline deadline);

  // For who waits in another way than by Wait, and has to do now and then what it does: throws CollectiveLost
  // if the group has failed, or a rank that `missing` names has left or died.
  void LookAtPeers(std::string_view operation, const std::function<bool(int)>& missing);
  // Throws CollectiveLost: this rank has waited in vain, for the ranks that `missing` names (none: for
  // `whom`).
  [[noreturn]] void GiveUp(std::string_view operation, const std::function<bool(int)>& missing,
                           std::string_view whom, std::chrono::nanoseconds waited);

  // After a failure, instead of all further calls: says that this rank touches nothing any more that the
  // ranks share, and returns when of those that `busy` names each has said so too, has left or died. Throws
  // CollectiveLost at the deadline.
  void Rest(const std::function<bool(int)>& busy, Deadline deadline);

  // Writes down that this rank has failed.
  void Abort() noexcept;
  void ThrowIfFailed(std::string_view operation) const;

 private:
  struct Control;
  struct Member;
  enum class Failure : int;

  explicit LocalGroup(const LocalGroupOptions& options);
  void AwaitMembers();
  void FindRoom();
  void WatchPeers();
  bool MaySpin() const;
  void ThrowIfGone(std::string_view operation, const std::function<bool(int)>& missing,
                   bool look_at_processes);
  bool HasDied(int local_rank) const;
  int RankOf(int local_rank) const { return options_.first_rank + local_rank * options_.rank_stride; }
  std::string NameOf(int local_rank) const;
  void Fail(Failure failure, int culprit) noexcept;

  LocalGroupOptions options_;
  SharedSegment segment_;
  Control* control_ = nullptr;
  Member* members_ = nullptr;
  uint64_t barriers_ = 0;
  int room_ = 1;
  std::vector<int> rivals_;       // ranks that may run on a core that this one may run on; itself included
  std::vector<UniqueFd> pidfds_;  // of each rank; none for a thread of this process
};

}  // namespace lockstep::trainer::collectives
