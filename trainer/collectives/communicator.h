#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

// collectives/: what the processes of a job say to one another while they train. `Communicator` is the
// interface; local/ carries it over shared memory between the processes of one machine, gloo/ over TCP
// between machines. Only strategy/ uses it: policy (who owns which gradients, when they are exchanged) is
// there, transport is here.
//
// Reductions add in the order of the ranks (((r0 + r1) + r2) + …), element by element, whatever the size, so
// a result depends on the inputs and the number of ranks only: the same bits on every rank and in every run.
//
// Gloo's headers stay in gloo/, and everything that maps memory or waits on a futex in local/.
namespace lockstep::trainer::collectives {

using Deadline = std::chrono::steady_clock::time_point;

// The part of `count` elements that `part` of `parts` owns: contiguous, in order, sizes differing by one at
// most.
struct Range {
  size_t begin = 0;
  size_t end = 0;
  size_t size() const { return end - begin; }
};
constexpr Range PartOf(size_t count, int part, int parts) {
  const auto p = static_cast<size_t>(part), n = static_cast<size_t>(parts);
  return {count / n * p + std::min(p, count % n), count / n * (p + 1) + std::min(p + 1, count % n)};
}

// A fixed group of ranks. Every rank makes the same calls in the same order with the same sizes and roots
// (not checked but where it is cheap). Calls block until this rank's part is done, at most until `deadline`.
//
// Failure: every call throws CollectiveLost naming the operation, the rank waited for where it is known, and
// the deadline. After one failure the communicator is dead: buffers hold anything, and every further call
// throws at once. The caller ends the process; the next generation makes a new communicator.
//
// Threads: one call at a time; Abort() from any thread.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // The sum over the ranks, in place, on every rank.
  virtual void AllReduce(std::span<float> data, Deadline deadline) = 0;
  virtual void AllReduce(std::span<double> data, Deadline deadline) = 0;
  // The sum over the ranks, in place on `root`; the other ranks' data stays as it was.
  virtual void Reduce(std::span<float> data, int root, Deadline deadline) = 0;
  // The root's data on every rank.
  virtual void Broadcast(std::span<std::byte> data, int root, Deadline deadline) = 0;
  // Every rank's `mine`, in rank order; `all` is size() times as long.
  virtual void AllGather(std::span<const std::byte> mine, std::span<std::byte> all, Deadline deadline) = 0;
  // `data` is summed; this rank's part of it, PartOf(data.size(), rank(), size()), holds the sum afterwards
  // and the rest of it anything.
  virtual void ReduceScatter(std::span<float> data, Deadline deadline) = 0;
  // The way back: every rank's part of `data` on all of them.
  virtual void AllGatherParts(std::span<float> data, Deadline deadline) = 0;
  // Every rank's part of `data` on the rank behind it too, the last one's on the first.
  virtual void CopyPartsOn(std::span<float> data, Deadline deadline) = 0;
  // Between two ranks, in order. A send may return before it is received.
  virtual void Send(std::span<const std::byte> data, int to, Deadline deadline) = 0;
  virtual void Recv(std::span<std::byte> data, int from, Deadline deadline) = 0;
  // Nobody leaves before everybody has come.
  virtual void Barrier(Deadline deadline) = 0;

  // Makes the pending call, if any, and all further ones throw. Peers notice within a second.
  virtual void Abort() noexcept = 0;
};

}  // namespace lockstep::trainer::collectives
