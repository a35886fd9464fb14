#pragma once

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "trainer/collectives/device_communicator.h"
#include "trainer/collectives/local/local_group.h"
#include "trainer/strategy/strategy.h"

namespace lockstep::trainer::strategy {

// Ranks on devices whose work runs behind the host: one, several on one machine, or several machines. Each
// rank has a copy of its own of everything in its device's memory. Of each bucket of gradients the sum over
// the ranks runs on the communication stream behind the rest of the backward pass, and every rank updates all
// parameters with what came back. All start from rank 0's parameters and apply the same sums in the same way,
// so they stay the same bit for bit.
//
// A step is recorded as a graph where all of it can be, after a first ordinary one of its size; one step in
// some is run as an ordinary one for its time to be taken apart.
class DeviceReplicated final : public Strategy {
 public:
  explicit DeviceReplicated(const Options& options);
  ~DeviceReplicated() override;

  void Setup(Model& model, Optimizer& optimizer, uint64_t seed) override;
  void StartStep(const Batch& batch) override;
  StepResult FinishStep() override;
  int max_in_flight() const override { return kInFlight; }
  Totals Sum(const Totals& local) override;
  void Finish() override;
  std::span<const float> parameters() const override { return Downloaded(0); }
  std::span<const float> slot(int index) const override { return Downloaded(1 + index); }
  int64_t step() const override { return step_; }
  void Restore(int64_t step, const Fill& fill) override;
  void Abort() noexcept override;

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kInFlight = 3;

  struct Bucket {
    collectives::Range range;
    std::unique_ptr<DeviceEvent> ready;    // on this rank
    std::unique_ptr<DeviceEvent> reduced;  // over all
    // On the compute stream, around its wait for `reduced`; with timing.
    std::unique_ptr<DeviceEvent> before, after;
  };
  // In pinned memory: what goes to the device in front of a step and comes back behind it; then a sum of
  // squares for each variable with an L2 penalty.
  struct Landing {
    collectives::DeviceReport mine;   // samples and stop
    collectives::DeviceReport total;  // over the ranks
    LossSums sums;                    // of this rank
  };
  // A step that was started.
  struct Flight {
    Landing* landing = nullptr;
    double* squares = nullptr;
    std::unique_ptr<DeviceEvent> done;
    int64_t global_samples = 0;
    bool measured = false;
  };
  // One on each rank of this machine, in shared memory: how many steps it has started.
  struct alignas(64) Member {
    std::atomic<int64_t> started;
  };
  // What a graph was recorded of.
  using Recorded = std::tuple<const void*, const void*, int64_t, int64_t>;  // a Batch's

  void Connect();
  void Allocate();
  void BroadcastState();
  void Run(const Batch& batch, bool measured);
  void Enqueue(const Batch& batch, bool measured);
  void SumOverRanks(bool measured);
  void Update(size_t begin, size_t end);
  double TakeExposed();
  // Waits for the event with an eye on the others. `waited_for` has to have started so many steps.
  void Await(DeviceEvent& event, const std::string& operation, int64_t steps);
  std::span<const float> Downloaded(int index) const;
  template <typename Work>
  void InStep(int64_t step, Work&& work);
  template <typename Work>
  void WithOthers(Work&& work);

  size_t total() const { return static_cast<size_t>(model_->layout().total); }
  bool alone() const { return options_.world.size == 1; }
  int64_t steps_started() const { return step_ + static_cast<int64_t>(started_ - finished_); }
  collectives::Deadline deadline() const { return Clock::now() + options_.collective_timeout; }

  Options options_;
  DeviceBackend& device_;
  Model* model_ = nullptr;
  Optimizer* optimizer_ = nullptr;
  std::vector<L2Range> l2_ranges_;
  std::vector<Variable> penalised_;  // variables with an L2 penalty

  std::unique_ptr<collectives::LocalGroup> group_;
  collectives::SharedSegment control_;
  Member* members_ = nullptr;

  // Device memory. State: parameters and slots, one behind the other. Exchange: gradients and the report.
  Buffer state_, exchange_, small_, pinned_;
  size_t stride_ = 0;  // floats from one part of the state to the next
  float* gradients_ = nullptr;
  collectives::DeviceReport* report_ = nullptr;
  float* rate_ = nullptr;
  double* squares_ = nullptr;
  Landing* sum_landing_ = nullptr;                                 // of Sum
  std::unique_ptr<collectives::DeviceCommunicator> communicator_;  // null when alone
  std::string why_these_ops_;

  std::vector<Bucket> buckets_;
  std::unique_ptr<DeviceEvent> reported_, report_reduced_, before_report_, after_report_, idle_;
  std::array<Flight, kInFlight> flights_;
  std::map<Recorded, std::unique_ptr<DeviceGraph>> graphs_;
  std::map<std::pair<int64_t, int64_t>, int> ordinary_;  // runs, by local and global samples
  bool recordable_ = false;

  uint64_t started_ = 0, finished_ = 0;  // steps, since Setup
  int64_t step_ = 0;                     // finished, those before a restored checkpoint included
  double exposed_ = 0;                   // of the last step that was measured
  bool ended_ = false;                   // by Finish
  // Of parameters and slots; and the step they are of, -1 for none.
  mutable std::vector<std::vector<float>> host_;
  mutable std::vector<int64_t> host_step_;
};

}  // namespace lockstep::trainer::strategy
