#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/batch_feed.h"
#include "trainer/config.h"
#include "trainer/data/dataset.h"
#include "trainer/data/sampler.h"
#include "trainer/event_writer.h"
#include "trainer/model/model.h"
#include "trainer/parameter_server/client.h"
#include "trainer/train_loop.h"
#include "trainer/worker_buffers.h"

namespace lockstep::trainer {

// A worker or the evaluator of a job with parameter servers: does what server 0 gives it to do, until that
// says that all is done. What it tells of steps is what it hears of the whole job's, so that each worker's
// line is the job's. Everything it is given outlives it.
class WorkerLoop {
 public:
  struct Parts {
    const Config& config;
    const data::DatasetView& dataset;
    Backend& backend;
    Model& model;
    const Model& served;  // whose layout the servers have; see WorkerBuffers
    const Optimizer& optimizer;
    int64_t max_local_batch = 0;  // the model's
    parameter_server::Client& client;
    EventWriter& events;
    trace::Recorder* trace = nullptr;  // null: nobody asked
  };

  explicit WorkerLoop(const Parts& parts);

  // Throws as its parts do.
  TrainingEnd Run();

  // From any thread: ends after the batch at hand.
  void RequestStop() { stop_ = true; }

 private:
  void Train(const parameter_server::Work& work);
  void Evaluate(const parameter_server::Work& work);
  void EvaluateOn(const char* split, data::Range samples, int64_t epoch);
  // The parameters of the work; false: it is void.
  bool Fetch(const parameter_server::Work& work, int64_t* version);
  // What the work says of the job's steps since the last time.
  void TellSteps(const parameter_server::Work& work);
  void SetPhase(const char* phase) { parts_.events.Write(contract::PhaseEvent{.phase = phase}); }

  using Clock = std::chrono::steady_clock;

  Parts parts_;
  data::Sampler sampler_;
  WorkerBuffers buffers_;
  std::unique_ptr<BatchFeed> feed_;
  std::atomic<bool> stop_{false};

  // Since steps were last told of.
  Clock::time_point told_ = Clock::now();
  double waited_ = 0;
  double flops_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace lockstep::trainer
