#include "trainer/worker_loop.h"

#include <algorithm>
#include <cstdio>
#include <string>

namespace lockstep::trainer {

using parameter_server::Commit;
using parameter_server::Task;
using parameter_server::Work;

WorkerLoop::WorkerLoop(const Parts& parts)
    : parts_(parts),
      sampler_({.samples = parts.dataset.training().count,
                .batch_size = parts.config.batch_size,
                .seed = parts.config.seed}),
      buffers_(parts.model, parts.served, parts.backend),
      feed_(BatchFeed::Make({.dataset = parts.dataset,
                             .model = parts.model,
                             .backend = parts.backend,
                             .capacity = parts.max_local_batch})) {}

TrainingEnd WorkerLoop::Run() {
  Work work = parts_.client.NextWork();
  parts_.events.Write(contract::ReadyEvent{});
  SetPhase("Training");
  told_ = Clock::now();
  while (!stop_ && work.task != Task::kEnd && work.task != Task::kStop) {
    if (work.task == Task::kBatch) Train(work);
    if (work.task == Task::kEvaluate) Evaluate(work);
    if (stop_) break;
    work = parts_.client.NextWork();
    TellSteps(work);
  }
  parts_.client.Leave();
  return work.task == Task::kEnd ? TrainingEnd::kDone : TrainingEnd::kStopped;
}

bool WorkerLoop::Fetch(const Work& work, int64_t* version) {
  const trace::Scope scope(parts_.trace, trace::Track::kCommunication, "pull");
  const auto fetched = parts_.client.Pull(work, buffers_.parameters());
  // Also of what is void something may have been written.
  if (fetched.changed) buffers_.ParametersCame();
  if (version != nullptr) *version = fetched.version;
  return fetched.valid;
}

void WorkerLoop::Train(const Work& work) {
  const data::Range samples{work.first, work.count};
  // Server 0 counts as this one does, unless it has another manifest.
  if (work.first < 0 || work.count < 1 || work.count > parts_.max_local_batch ||
      samples.end() > parts_.dataset.training().count || work.batch_samples < work.count) {
    throw BadData("parameter server 0 gives out samples that this worker does not have");
  }
  Commit report;
  if (parts_.trace != nullptr) parts_.trace->BeginStep(work.step + 1);
  const trace::Scope step(parts_.trace, trace::Track::kSteps, "step");
  if (!Fetch(work, &report.version)) return;
  const auto numbers =
      sampler_.Order(work.epoch).subspan(static_cast<size_t>(work.first), static_cast<size_t>(work.count));
  const BatchFeed::Batch batch = [&] {
    const trace::Scope scope(parts_.trace, trace::Track::kData, "data wait");
    return feed_->Load({work.epoch, work.first}, numbers);
  }();
  Model& model = parts_.model;
  const LossResult result =
      model.TrainStep({.inputs = batch.inputs,
                       .labels = batch.labels,
                       .n = work.count,
                       .scale = 1.0f / static_cast<float>(work.batch_samples),
                       .keys = {.seed = parts_.config.seed, .epoch = work.epoch, .samples = numbers}},
                      nullptr);
  report.loss_sum = result.loss_sum;
  report.correct = result.correct;
  report.penalty = model.L2Penalty();
  flops_ += static_cast<double>(model.training_flops() * work.count);
  const std::span<const float> gradients = buffers_.TakeGradients();
  bytes_ += static_cast<int64_t>(gradients.size_bytes());
  const trace::Scope scope(parts_.trace, trace::Track::kCommunication, "push",
                           {.bytes = static_cast<int64_t>(gradients.size_bytes())});
  parts_.client.Push(work, gradients, report);
}

void WorkerLoop::TellSteps(const Work& work) {
  if (work.steps == 0) return;
  const Clock::time_point now = Clock::now();
  const double waited = parts_.client.waited_seconds();
  parts_.events.WriteStep({.step = work.step,
                           .steps = work.steps,
                           .total_steps = work.total_steps,
                           .epoch = work.epoch,
                           .samples = work.samples,
                           .loss = work.loss,
                           .learning_rate = parts_.optimizer.learning_rate(work.step),
                           .seconds = std::chrono::duration<double>(now - told_).count(),
                           .collective_seconds = waited - waited_,
                           .collective_bytes = bytes_,
                           .flops = flops_});
  told_ = now;
  waited_ = waited;
  flops_ = 0;
  bytes_ = 0;
}

void WorkerLoop::Evaluate(const Work& work) {
  if (!Fetch(work, nullptr)) return;
  parts_.client.HaveParameters();
  SetPhase("Evaluating");
  if (work.validation) EvaluateOn("validation", parts_.dataset.validation(), work.epoch);
  if (work.test) EvaluateOn("test", parts_.dataset.test(), work.epoch);
  SetPhase("Training");
}

void WorkerLoop::EvaluateOn(const char* split, data::Range samples, int64_t epoch) {
  const auto start = Clock::now();
  LossResult sum;
  const int64_t pass = parts_.model.max_pass();
  for (int64_t done = 0; done < samples.count; done += pass) {
    const int64_t count = std::min(pass, samples.count - done);
    const BatchFeed::Batch batch = feed_->Load(data::Range{samples.first + done, count});
    const LossResult result = parts_.model.Evaluate(batch.inputs, batch.labels, count);
    sum.loss_sum += result.loss_sum;
    sum.correct += result.correct;
  }
  const auto count = static_cast<double>(samples.count);
  const bool accuracy = !parts_.config.model.metrics.empty();
  const contract::EvaluationEvent evaluation{
      .split = split,
      .epoch = epoch,
      .loss = sum.loss_sum / count + parts_.model.L2Penalty(),
      .accuracy = accuracy ? static_cast<double>(sum.correct) / count : -1,
      .seconds = std::chrono::duration<double>(Clock::now() - start).count()};
  parts_.events.Write(evaluation);
  std::printf("epoch %ld, %s: loss %.4f", static_cast<long>(epoch + 1), split, evaluation.loss);
  if (accuracy) std::printf(", accuracy %.4f", evaluation.accuracy);
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace lockstep::trainer
