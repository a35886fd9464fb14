#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "trainer/optimizer/optimizer.h"
#include "trainer/parameter_server/pool.h"
#include "trainer/parameter_server/protocol.h"
#include "trainer/tensor/buffer.h"

namespace lockstep::trainer::parameter_server {

// One server's variables with the optimizer's state of them, dense (partition.h), and the gradients that wait
// to be applied. Any thread may read and stage; Load, Apply, Drop and Export are one thread's at a time, and
// their order is what makes the state.
class Shard {
 public:
  struct Options {
    int64_t floats = 0;
    std::vector<UpdateRange> ranges;
    size_t most_staged = 0;  // gradients that may wait: what a lease more needs, waits for room
  };
  // The optimizer (of a backend of host memory) is the shard's alone and outlives it.
  Shard(Options options, Optimizer& optimizer);

  int64_t floats() const { return options_.floats; }
  int slots() const { return optimizer_.slots(); }

  // Parameters as they were at one version. Readers of a version share one copy, and hold up nobody.
  struct Copy {
    int64_t version = -1;
    Buffer values;
  };
  struct Reading {
    Pulled result = Pulled::kVoid;
    std::shared_ptr<const Copy> copy;  // when kHere
    int64_t version = 0;
  };
  // Waits until `pull.least_version` is reached. kVoid: the era is another, or the deadline has passed.
  Reading Read(const Pull& pull, Deadline deadline);

  // A place for a gradient that is about to come; its contents are undefined. Empty: the era is another, or
  // there was no room by the deadline.
  Buffer Room(int64_t era, Deadline deadline);
  // The gradient is complete, or not coming (false). Returns whether it is kept.
  bool Stage(int64_t era, int64_t worker, int64_t lease, Buffer gradient, bool complete);

  // Begins an era.
  void Load(int64_t era, int64_t version, std::span<const float> parameters,
            std::span<const std::span<const float>> slots);
  // One update with the sum of these gradients, in this order. False: one of them is not here.
  bool Apply(int64_t version, std::span<const int64_t> leases);
  // A lease of `worker` is void; so are its older ones that have not come by now.
  void Drop(int64_t worker, int64_t lease);
  void Export(std::span<float> parameters, std::span<const std::span<float>> slots) const;
  // No era: readers and stagers are sent away, until Load.
  void Void();

  int64_t version() const;
  size_t staged() const;
  bool Holds(int64_t lease) const;

 private:
  void Recycle(Buffer buffer);

  const Options options_;
  Optimizer& optimizer_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  int64_t era_ = 0;  // 0: none
  int64_t version_ = 0;
  Buffer parameters_;
  Buffer slots_[kMostSlots];
  Pool<Copy> copies_;
  std::shared_ptr<Copy> newest_;
  std::map<int64_t, Buffer> staged_;     // by lease
  size_t coming_ = 0;                    // rooms that were given and not staged yet
  std::map<int64_t, int64_t> resolved_;  // by worker: leases up to this one need not come any more
  std::vector<Buffer> free_;
};

}  // namespace lockstep::trainer::parameter_server
