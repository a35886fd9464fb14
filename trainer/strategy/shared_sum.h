#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "trainer/collectives/communicator.h"
#include "trainer/collectives/local/local_group.h"
#include "trainer/layers/pass.h"

namespace lockstep::trainer::strategy {

// Sums of a few numbers over the ranks: those of a machine through shared memory, machines through their
// first ranks. For the thread that makes the passes; what carries gradients meanwhile is not touched.
class SharedSum final : public ReplicaSum {
 public:
  struct Options {
    collectives::LocalGroup* group = nullptr;
    // Between the first ranks of the machines, and of nobody else's use; null on one machine and on others.
    collectives::Communicator* machines = nullptr;
    bool several_machines = false;
    std::function<collectives::Deadline()> deadline;  // of a wait that begins now
    std::string operation = "sum over the replicas";  // for messages
  };

  // Collective. Group and communicator outlive it. Throws as LocalGroup::CreateSegment.
  explicit SharedSum(const Options& options);

  void Sum(std::span<double> values) override;

 private:
  void SumPiece(std::span<double> values);
  std::span<double> Part(int part, uint64_t turn) const;

  Options options_;
  // For each rank, and then for the sum over the machines, two parts by turns: who is a sum ahead does not
  // overwrite what another still reads.
  collectives::SharedSegment segment_;
  uint64_t turn_ = 0;
};

}  // namespace lockstep::trainer::strategy
