#include "trainer/collectives/local/local_group.h"

#include <immintrin.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <limits>

#include "trainer/collectives/local/cores.h"
#include "trainer/collectives/local/futex.h"
#include "trainer/error.h"

namespace lockstep::trainer::collectives {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

// About what it costs to put a rank to sleep and to wake it again.
constexpr auto kSpin = std::chrono::microseconds(100);
constexpr auto kLookAtPeers = std::chrono::milliseconds(100);
// How often a rank looks that has nothing else to do, and whom nobody wakes.
constexpr auto kLookWhoRests = std::chrono::milliseconds(1);

std::string Seconds(nanoseconds duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(duration).count());
  return text;
}

}  // namespace

enum class LocalGroup::Failure : int { kNone, kDied, kLeft, kLate, kAborted };

// What is in the shared memory. Zero bytes are the right start for all of it.
struct alignas(64) LocalGroup::Control {
  std::atomic<uint32_t> sleepers;
  std::atomic<uint32_t> failure;  // Failure | culprit << 8
};
struct alignas(64) LocalGroup::Member {
  // A bed to sleep in: 1 while somebody does and has not been woken; and the futex.
  struct Bed {
    std::atomic<uint32_t> asleep;
    std::atomic<uint32_t> woken;
  };
  std::atomic<uint64_t> barrier;  // barriers come to
  std::array<Bed, 2> beds;        // by Waiter
  std::atomic<uint32_t> left;
  std::atomic<uint32_t> rests;
  std::atomic<int32_t> pid;
  std::array<std::atomic<uint64_t>, kCpuMaskWords> cores;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

LocalGroup::LocalGroup(const LocalGroupOptions& options) : options_(options) {}

std::unique_ptr<LocalGroup> LocalGroup::Join(const LocalGroupOptions& options) {
  std::unique_ptr<LocalGroup> group(new LocalGroup(options));
  const size_t size = sizeof(Control) + sizeof(Member) * static_cast<size_t>(options.size);
  const std::string key = options.key + "/group";
  const bool alone = options.size == 1;
  if (options.rank == 0) {
    group->segment_ = SharedSegment::Create("group", size);
    if (options.segments != nullptr) options.segments->Put(key, group->segment_);
    if (!alone) group->segment_.Publish(*options.store, key, options.deadline);
  } else {
    try {
      group->segment_ = SharedSegment::Attach(*options.store, key, size, options.deadline);
    } catch (const RendezvousFailed& failed) {
      throw RendezvousFailed("joining rank " + std::to_string(options.first_rank) +
                             ", the first of this machine: " + failed.what());
    }
    if (options.segments != nullptr) group->segment_ = options.segments->Find(key);
  }
  group->control_ = reinterpret_cast<Control*>(group->segment_.data());
  group->members_ = reinterpret_cast<Member*>(group->segment_.data() + sizeof(Control));

  Member& me = group->members_[options.rank];
  std::array<uint64_t, kCpuMaskWords> cores;
  ReadAffinity(cores);
  for (size_t i = 0; i < cores.size(); ++i) me.cores[i].store(cores[i]);
  me.pid.store(::getpid());
  if (!alone) group->AwaitMembers();
  group->FindRoom();
  group->WatchPeers();
  return group;
}

// Through the store and not by a barrier: who has not come has no process yet to watch, and the store knows
// more about the missing than we do.
void LocalGroup::AwaitMembers() {
  const auto check = [&](const Status& status) {
    if (status.ok()) return;
    std::string missing;
    for (int r = 0; r < size(); ++r) {
      if (members_[r].pid.load() == 0) missing += (missing.empty() ? "" : ", ") + std::to_string(RankOf(r));
    }
    throw RendezvousFailed("joining the ranks of this machine: missing " +
                           (missing.empty() ? "none" : missing) + ": " + status.message());
  };
  std::vector<std::string> keys;
  for (int r = 0; r < size(); ++r) keys.push_back(options_.key + "/joined/" + std::to_string(r));
  check(options_.store->Set(keys[static_cast<size_t>(rank())], "1", options_.deadline));
  check(options_.store->Wait(keys, options_.deadline));
}

void LocalGroup::FindRoom() {
  std::array<uint64_t, kCpuMaskWords> all{};
  for (int r = 0; r < size(); ++r) {
    bool meets = r == rank();
    for (size_t i = 0; i < all.size(); ++i)
      meets |= (members_[r].cores[i].load() & members_[rank()].cores[i].load()) != 0;
    if (!meets) continue;
    rivals_.push_back(r);
    for (size_t i = 0; i < all.size(); ++i) all[i] |= members_[r].cores[i].load();
  }
  int cores = 0;
  for (const uint64_t word : all) cores += std::popcount(word);
  room_ = std::max(1, std::min(cores, CgroupCores()) / std::max(1, options_.threads));
}

void LocalGroup::WatchPeers() {
  pidfds_.resize(static_cast<size_t>(size()));
  for (int r = 0; r < size(); ++r) {
    const int pid = members_[r].pid.load();
    if (pid == ::getpid()) continue;
    pidfds_[static_cast<size_t>(r)].reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!pidfds_[static_cast<size_t>(r)] && errno == ESRCH) Fail(Failure::kDied, r);
  }
}

LocalGroup::~LocalGroup() {
  if (members_ == nullptr) return;
  members_[rank()].left.store(1);
  Wake();
}

SharedSegment LocalGroup::CreateSegment(std::string_view name, size_t size, Deadline deadline,
                                        bool resident) {
  const std::string key = options_.key + "/" + std::string(name);
  SharedSegment segment;
  if (rank() == 0) {
    segment = SharedSegment::Create(name, size, resident);
    if (options_.segments != nullptr) options_.segments->Put(key, segment);
    if (this->size() > 1) segment.Publish(*options_.store, key, deadline);
  } else {
    segment = SharedSegment::Attach(*options_.store, key, size, deadline, resident);
    if (options_.segments != nullptr) segment = options_.segments->Find(key);
  }
  Barrier("mapping shared memory", deadline);
  return segment;
}

int LocalGroup::awake() const {
  return size() - static_cast<int>(control_->sleepers.load(std::memory_order_relaxed));
}

bool LocalGroup::MaySpin() const {
  int awake = 0;
  for (const int r : rivals_) awake += members_[r].beds[0].asleep.load(std::memory_order_relaxed) == 0;
  return awake <= room_;
}

void LocalGroup::Wait(std::string_view operation, const std::function<Look()>& look,
                      const std::function<bool(int)>& missing, Deadline deadline, Waiter waiter) {
  ThrowIfFailed(operation);
  if (look() == Look::kDone) return;
  const auto start = Clock::now();
  auto spin_until = start + kSpin;
  auto look_at_peers = start + kLookAtPeers;
  Member::Bed& bed = members_[rank()].beds[static_cast<size_t>(waiter)];
  while (true) {
    while (waiter == Waiter::kMain && Clock::now() < spin_until && MaySpin()) {
      for (int i = 0; i < 16; ++i) {
        const Look found = look();
        if (found == Look::kDone) return;
        if (found == Look::kProgress) spin_until = Clock::now() + kSpin;
        _mm_pause();
      }
    }
    control_->sleepers.fetch_add(1);
    bed.asleep.store(1);
    const uint32_t woken = bed.woken.load();
    Look found = look();
    if (found == Look::kIdle && control_->failure.load() == 0) {
      const nanoseconds left = std::max(nanoseconds(0), nanoseconds(deadline - Clock::now()));
      FutexWait(bed.woken, woken, std::min<nanoseconds>(left, kLookAtPeers));
    }
    // Whoever wakes a sleeper has counted it out already: it is awake from then on, though it may not run
    // yet.
    if (bed.asleep.exchange(0) == 1) control_->sleepers.fetch_sub(1);
    if (found == Look::kIdle) found = look();
    if (found == Look::kDone) return;
    const auto now = Clock::now();
    if (found == Look::kProgress) {
      spin_until = now + kSpin;
      continue;
    }
    ThrowIfFailed(operation);
    ThrowIfGone(operation, missing, now >= look_at_peers);
    if (now >= look_at_peers) look_at_peers = now + kLookAtPeers;
    if (now >= deadline) GiveUp(operation, missing, "nobody", now - start);
  }
}

void LocalGroup::Wake(int most) noexcept {
  if (control_->sleepers.load() == 0) return;
  for (int r = 0; r < size() && most > 0; ++r) {
    for (Member::Bed& bed : members_[r].beds) {
      if (bed.asleep.load() == 0 || bed.asleep.exchange(0) == 0) continue;
      control_->sleepers.fetch_sub(1);
      bed.woken.fetch_add(1);
      FutexWake(bed.woken);
      --most;
    }
  }
}

void LocalGroup::Barrier(std::string_view operation, Deadline deadline) {
  ThrowIfFailed(operation);
  const uint64_t number = ++barriers_;
  members_[rank()].barrier.store(number);
  const auto missing = [&](int r) { return members_[r].barrier.load() < number; };
  const auto look = [&] {
    for (int r = 0; r < size(); ++r) {
      if (missing(r)) return Look::kIdle;
    }
    return Look::kDone;
  };
  if (look() == Look::kDone) return Wake();  // the last to come
  Wait(operation, look, missing, deadline);
}

// A peer that left or died after it had done what is waited for is no failure, so its deeds are read after
// its end.
void LocalGroup::ThrowIfGone(std::string_view operation, const std::function<bool(int)>& missing,
                             bool look_at_processes) {
  for (int r = 0; r < size(); ++r) {
    if (r != rank() && members_[r].left.load() != 0 && missing(r)) Fail(Failure::kLeft, r);
    if (look_at_processes && HasDied(r) && missing(r)) Fail(Failure::kDied, r);
  }
  ThrowIfFailed(operation);
}

bool LocalGroup::HasDied(int local_rank) const {
  const int pid = members_[local_rank].pid.load();
  if (pid == ::getpid()) return false;
  const UniqueFd& pidfd = pidfds_[static_cast<size_t>(local_rank)];
  pollfd poll{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  return pidfd ? ::poll(&poll, 1, 0) == 1 : ::kill(pid, 0) != 0 && errno == ESRCH;
}

void LocalGroup::Rest(const std::function<bool(int)>& busy, Deadline deadline) {
  members_[rank()].rests.store(1);
  const auto start = Clock::now();
  const auto moves = [&](int r) {
    return busy(r) && members_[r].rests.load() == 0 && members_[r].left.load() == 0 && !HasDied(r);
  };
  Member::Bed& bed = members_[rank()].beds[static_cast<size_t>(Waiter::kMain)];
  for (int r = 0; r < size(); ++r) {
    while (r != rank() && moves(r)) {
      if (Clock::now() >= deadline) GiveUp("coming to rest", moves, "nobody", Clock::now() - start);
      FutexWait(bed.woken, bed.woken.load(), kLookWhoRests);
    }
  }
}

void LocalGroup::LookAtPeers(std::string_view operation, const std::function<bool(int)>& missing) {
  ThrowIfFailed(operation);
  ThrowIfGone(operation, missing, true);
}

void LocalGroup::GiveUp(std::string_view operation, const std::function<bool(int)>& missing,
                        std::string_view whom, nanoseconds waited) {
  std::string names;
  int first = rank();
  for (int r = size() - 1; r >= 0; --r) {
    if (r == rank() || !missing(r)) continue;
    names = NameOf(r) + (names.empty() ? "" : ", ") + names;
    first = r;
  }
  Fail(Failure::kLate, first);
  throw CollectiveLost(std::string(operation) + ": rank " + std::to_string(RankOf(rank())) +
                       " waited in vain for " + (names.empty() ? std::string(whom) : names) +
                       " until the deadline, " + Seconds(waited));
}

std::string LocalGroup::NameOf(int local_rank) const {
  return "rank " + std::to_string(RankOf(local_rank)) + " (pid " +
         std::to_string(members_[local_rank].pid.load()) + ")";
}

void LocalGroup::Fail(Failure failure, int culprit) noexcept {
  uint32_t none = 0;
  control_->failure.compare_exchange_strong(
      none, static_cast<uint32_t>(failure) | static_cast<uint32_t>(culprit) << 8);
  Wake();
}

void LocalGroup::Abort() noexcept { Fail(Failure::kAborted, rank()); }

void LocalGroup::ThrowIfFailed(std::string_view operation) const {
  const uint32_t failure = control_->failure.load();
  if (failure == 0) return;
  std::string what = std::string(operation) + ": " + NameOf(static_cast<int>(failure >> 8));
  switch (static_cast<Failure>(failure & 0xff)) {
    case Failure::kDied:
      what += " has died";
      break;
    case Failure::kLeft:
      what += " has left the group";
      break;
    case Failure::kLate:
      what += " did not come before another rank's deadline";
      break;
    default:
      what += " has given up";
  }
  throw CollectiveLost(what);
}

}  // namespace lockstep::trainer::collectives
