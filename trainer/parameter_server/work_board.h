#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trainer/data/range.h"
#include "trainer/strategy/strategy.h"

namespace lockstep::trainer::parameter_server {

// Which batch is whose, which gradients count, and what an update is made of. No I/O, no clock of its own,
// one thread at a time.
//
// Work is given out in leases: who has one computes the gradient of some samples of the epoch's order
// (data/sampler.h) and commits it, or loses it. A lease is worth something once; so every sample counts once
// an epoch, whoever is lost when.
//
// Synchronous: each global batch is cut into `parts`, and their gradients, once all have come, make one
// update, summed in the order of the parts: who computed which changes nothing, not a bit of it. Where there
// are fewer parts than workers the others are backups, which compute a part that somebody else has already;
// who comes second is dropped.
//
// Asynchronous: a lease is a whole global batch, and its gradient is an update. One that was computed with
// parameters more than `max_gradient_age` updates old is dropped, and its batch given out again.
class WorkBoard {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Options {
    int64_t samples = 0;  // of the training set
    int64_t batch_size = 0;
    int64_t epochs = 0;
    bool synchronous = true;
    int parts = 1;  // of a global batch; 1 when asynchronous
    int workers = 1;
    std::optional<int64_t> max_gradient_age;
    // After this the same is given to another too; who commits first has done it.
    std::chrono::steady_clock::duration lease_time = std::chrono::minutes(1);
  };

  // Where a training is.
  struct State {
    int64_t version = 0;           // updates done
    int64_t next = 0;              // batches from here on were never given out, counted over all epochs
    std::vector<int64_t> missing;  // of those before, which are not done; ascending
    std::map<int64_t, strategy::Totals> epochs;  // sums over the part of an unfinished epoch that is done
  };

  explicit WorkBoard(const Options& options) : WorkBoard(options, State{}) {}
  WorkBoard(const Options& options, const State& state);

  struct Work {
    int64_t lease = 0;  // ascending
    int64_t epoch = 0;
    data::Range samples;        // of the epoch's order
    int64_t batch_samples = 0;  // of the whole that the gradient is a part of: it is scaled by 1 / this
    int64_t version = 0;        // the updates that the parameters need to have
  };
  // Nothing: there is none at the moment, or at all (done()). A worker may have several leases.
  std::optional<Work> Take(int worker, TimePoint now);

  struct Report {
    double loss_sum = 0;
    int64_t correct = 0;
    double penalty = 0;   // of the parameters it was computed with
    int64_t version = 0;  // of those parameters
  };
  struct Update {
    int64_t version = 0;          // that it makes
    std::vector<int64_t> leases;  // whose gradients are summed, in this order
    int64_t epoch = 0;
    data::Range batch;  // of the epoch's order
    double loss = 0;    // mean over the batch, with the penalty
    int64_t age = 0;    // updates since the parameters it was computed with; 0 when synchronous
    bool ends_epoch = false;
    strategy::Totals epoch_totals;  // when it does
  };
  struct Outcome {
    bool counts = false;
    std::optional<Update> update;
  };
  // What does not count is void: no such lease of this worker, another was first, too old.
  Outcome Commit(int worker, int64_t lease, const Report& report);

  // The worker is lost, or has given up: its leases, which are void from now on.
  std::vector<int64_t> Forget(int worker);
  bool has_lease(int worker) const;

  bool done() const { return first_not_done() == total_batches(); }
  int64_t version() const { return version_; }
  int64_t total_batches() const { return batches_per_epoch_ * options_.epochs; }
  // Batches before are all done.
  int64_t first_not_done() const;
  int64_t leases_out() const { return static_cast<int64_t>(leases_.size()); }
  State state() const;
  data::Range SamplesOf(int64_t batch) const;
  int64_t EpochOf(int64_t batch) const { return batch / batches_per_epoch_; }

 private:
  struct Lease {
    int worker = 0;
    int64_t batch = 0;
    int part = 0;
    TimePoint given;
    bool late = false;
  };
  struct Part {
    std::optional<int64_t> lease;  // that committed it
    Report report;
  };

  Work Give(int worker, int64_t batch, int part, TimePoint now);
  std::optional<int64_t> NextBatch();
  void NoteLateOnes(TimePoint now);
  data::Range PartOf(int64_t batch, int part) const;
  int Copies(int part) const;
  // Which part to compute next; -1: none.
  int ChoosePart() const;
  std::optional<Update> CommitPart(int64_t id, const Lease& lease, const Report& report);
  Update Advance(int64_t batch, std::vector<int64_t> leases, const strategy::Totals& totals, double penalty);

  Options options_;
  int64_t batches_per_epoch_;
  int64_t version_ = 0;
  int64_t next_ = 0;
  std::set<int64_t> again_;  // batches before next_ that are to be given out (again)
  std::map<int64_t, Lease> leases_;
  int64_t last_lease_ = 0;
  std::optional<int64_t> at_hand_;  // synchronous: the batch that all work on
  std::vector<Part> parts_;         // of it
  std::map<int64_t, strategy::Totals> epochs_;
};

}  // namespace lockstep::trainer::parameter_server
