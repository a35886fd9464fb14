#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "trainer/collectives/device_communicator.h"
#include "trainer/collectives/device_link.h"
#include "trainer/strategy/device_rates.h"
#include "trainer/strategy/device_trace.h"
#include "trainer/strategy/device_watch.h"
#include "trainer/strategy/pipeline_whole.h"
#include "trainer/strategy/shared_sum.h"
#include "trainer/strategy/strategy.h"

namespace lockstep::trainer::strategy {

// Pipeline on devices whose work runs behind the host, of one machine: stages, schedules, shares and losses
// are those of the one on processors, and so is a checkpoint. Each rank has its stage's parameters,
// gradients and optimizer state in its device's memory; ranks of one stage start from the same parameters,
// sum their gradients and apply the same sums in the same way, so they stay the same bit for bit.
//
// Activations and their gradients go from device to device over links, and the host enqueues the passes of up
// to three steps without waiting for a device: only, where peers copy into each other's memory, for the
// neighbour's host to have enqueued what it sends. What is reported of a step is added up by the hosts, when
// it is done on the devices. Steps are not recorded as graphs.
//
// (docs/adr/0012-pipelines-on-gpus.md)
class DevicePipeline final : public Strategy {
 public:
  // Throws Unsupported when the ranks do not make whole pipelines.
  explicit DevicePipeline(const Options& options);
  ~DevicePipeline() override;

  void Setup(Model& model, Optimizer& optimizer, uint64_t seed) override;
  void StartStep(const Batch& batch) override;
  StepResult FinishStep() override;
  int max_in_flight() const override { return kInFlight; }
  DataShare data_share() const override { return {place_.pipeline, place_.pipelines}; }
  Totals Evaluate(Model& model, const void* inputs, const void* labels, int64_t n) override;
  void UseAverage(bool average) override;
  double L2Penalty(Model& model) override;
  Totals Sum(const Totals& local) override;
  void Finish() override;
  // Of this rank's stage.
  std::span<const float> parameters() const override { return Downloaded(0); }
  std::span<const float> slot(int index) const override { return Downloaded(1 + index); }
  int64_t step() const override { return step_; }
  // Fills on every rank.
  void Restore(int64_t step, const Fill& fill) override;
  std::vector<NamedShape> Variables(const Model& model) const override;
  std::vector<NamedShape> StateVariables(const Model& model) const override;
  // Among several each stage's ranks bring what is theirs; to one it all goes through shared memory.
  Shares ShareOut(const Model& model, int ranks) const override;
  void Export(Model& model, const Shares& shares, WholeState* to) override;
  void Import(Model& model, int64_t step, const WholeState& from) override;
  void Abort() noexcept override;

 protected:
  const World& world() const override { return options_.world; }

 private:
  static constexpr int kInFlight = 3;

  // In pinned memory, where a step's sums come to; then a sum of squares for each variable with a penalty.
  struct Landing {
    LossSums sums;
  };
  // A step that was started.
  struct Flight {
    Landing* landing = nullptr;
    double* squares = nullptr;
    std::unique_ptr<DeviceEvent> done;
    int64_t local_samples = 0, global_samples = 0;
    bool stop = false;  // this rank had been asked to
    bool measured = false;
    int64_t moved = 0;  // bytes
  };
  // The events around a wait of the compute stream for others; with timing.
  struct Wait {
    std::unique_ptr<DeviceEvent> before, after;
  };
  // What the hosts add up of a step: loss, correct, samples, stop, penalty.
  using Report = std::array<double, 5>;

  void Connect();
  std::unique_ptr<collectives::DeviceLink> MakeLink(int stage);
  std::unique_ptr<collectives::DeviceCommunicator> ConnectGroup(const std::string& key, int rank, int size,
                                                                int first, int stride);
  void Allocate();
  void CheckCommunicators();
  // The slots that a stage's passes and places take turns in.
  size_t Places(int stage) const;
  size_t SlotOf(uint64_t number) const { return static_cast<size_t>(number % Places(place_.stage)); }
  void Passes(const Batch& batch, Flight* flight);
  // Where the inputs are of a micro-batch of `samples`: `of_batch`, or what the stage before sends.
  const void* Inputs(const void* of_batch, int64_t samples, bool measured);
  void HandOn(const void* outputs, int64_t samples, Flight* flight);
  void Backward(const ModelBatch& micro, int64_t begin, uint64_t number, Flight* flight);
  void SumGradients(Flight* flight);
  void Update();
  // Enqueues what makes the compute stream wait for others.
  DeviceTrace::Scope Traced(const char* name);
  template <typename Enqueue>
  void Timed(bool measured, Enqueue&& enqueue);
  double TakeExposed() const;
  void BindTo(float* parameters);
  float* OptimizerSlot(int index) const {
    return state_.as<float>() + static_cast<size_t>(1 + index) * stride_;
  }
  std::span<const float> Downloaded(int index) const;
  template <typename Work>
  void InStep(int64_t step, Work&& work);

  size_t total() const { return static_cast<size_t>(model_->layout().total); }
  int stages() const { return options_.pipeline.count(); }
  bool leads() const { return place_.pipeline == 0; }
  const StageFacts& FactsOf(int stage) const { return facts_[static_cast<size_t>(stage)]; }
  int64_t steps_started() const { return step_ + static_cast<int64_t>(started_ - finished_); }
  collectives::Deadline deadline() const {
    return std::chrono::steady_clock::now() + options_.collective_timeout;
  }

  Options options_;
  std::unique_ptr<DeviceTrace> trace_;  // null: nobody asked
  DeviceBackend& device_;
  PipelinePlace place_;
  Model* model_ = nullptr;
  Optimizer* optimizer_ = nullptr;
  uint64_t seed_ = 0;
  StagesFacts facts_;
  std::vector<Variable> penalised_;  // variables with an L2 penalty
  std::vector<UpdateRange> ranges_;

  std::unique_ptr<collectives::LocalGroup> group_;
  std::unique_ptr<DeviceWatch> watch_;
  std::unique_ptr<SharedSum> reports_;
  collectives::SharedSegment exported_;

  // Device memory. State: parameters and slots, one behind the other.
  Buffer state_, micro_gradients_, small_, pinned_;
  Buffer sums_;                      // of gradients over micro-batches, then over pipelines
  Buffer norm_;                      // a DeviceReport, its loss the squared norm of the whole gradient
  Buffer output_gradient_;           // of the last stage's outputs
  Buffer input_gradients_;           // what goes back to the stage before, by place
  size_t input_gradient_bytes_ = 0;  // of a place
  size_t stride_ = 0;                // floats of the parameters
  double* squares_ = nullptr;
  std::unique_ptr<DeviceRates> rates_;
  collectives::DeviceOps ops_ = collectives::DeviceOps::kNccl;
  bool shared_devices_ = false;
  std::unique_ptr<collectives::DeviceCommunicator> of_stage_;  // null with one pipeline
  std::unique_ptr<collectives::DeviceCommunicator> of_all_;    // null unless gradients are clipped by norm
  std::unique_ptr<collectives::DeviceLink> before_, after_;    // null at the ends

  std::unique_ptr<DeviceEvent> idle_;
  std::array<Flight, kInFlight> flights_;
  std::vector<Wait> waits_;  // of the last step that was measured
  size_t waits_used_ = 0;
  uint64_t passed_ = 0;                  // micro-batches that went through since Setup
  uint64_t started_ = 0, finished_ = 0;  // steps, since Setup
  int64_t step_ = 0;                     // finished, those before a restored checkpoint included
  double exposed_ = 0;                   // of the last step that was measured
  bool ended_ = false;                   // by Finish
  // Of parameters and slots; and the step they are of, -1 for none.
  mutable std::vector<std::vector<float>> host_;
  mutable std::vector<int64_t> host_step_;
};

}  // namespace lockstep::trainer::strategy
