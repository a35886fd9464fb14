#include "launcher/telemetry/job_metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "launcher/telemetry/device_metrics.h"
#include "launcher/telemetry/families.h"
#include "launcher/telemetry/process_metrics.h"
#include "launcher/telemetry/render_metrics.h"

namespace lockstep::telemetry {

namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;

// In the order of RestartReason.
constexpr std::array<std::string_view, 8> kReasons = {"ExitCode",    "Signal",       "OOMKilled", "Hang",
                                                      "ReplicaLost", "DeviceFailed", "Resized",   "Other"};

// What a process may say of its device's memory.
constexpr std::array<std::string_view, 6> kMemoryKinds = {"used",  "held",    "peak",
                                                          "limit", "context", "reserved"};

// From a step of a small model on one core (0.1 ms) to a minute.
const Histogram::BucketBoundaries& StepBuckets() {
  static const Histogram::BucketBoundaries buckets = {
      1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
  return buckets;
}
// `count` steps that took `seconds` together, as if each had taken its share. Takes the same time for any
// count, which a program is free to claim.
void ObserveEach(Histogram& histogram, double seconds, int64_t count) {
  const Histogram::BucketBoundaries& bounds = StepBuckets();
  const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), seconds / static_cast<double>(count));
  std::vector<double> increments(bounds.size() + 1);
  increments[static_cast<size_t>(bucket - bounds.begin())] = static_cast<double>(count);
  histogram.ObserveMultiple(increments, seconds);
}

const Histogram::BucketBoundaries& CheckpointBuckets() {
  static const Histogram::BucketBoundaries buckets = {1e-3, 5e-3, 0.01, 0.05, 0.1, 0.5,
                                                      1,    5,    10,   30,   60,  300};
  return buckets;
}

prometheus::Labels LabelsOf(const RankIdentity& identity) {
  return {{"role", identity.role},
          {"replica", std::to_string(identity.replica)},
          {"process", std::to_string(identity.process)}};
}

prometheus::ClientMetric Labelled(const prometheus::Labels& labels) {
  prometheus::ClientMetric metric;
  for (const auto& [name, value] : labels) metric.label.push_back({.name = name, .value = value});
  return metric;
}
prometheus::ClientMetric GaugeOf(const prometheus::Labels& labels, double value) {
  prometheus::ClientMetric metric = Labelled(labels);
  metric.gauge.value = value;
  return metric;
}
prometheus::ClientMetric CounterOf(const prometheus::Labels& labels, double value) {
  prometheus::ClientMetric metric = Labelled(labels);
  metric.counter.value = value;
  return metric;
}
prometheus::MetricFamily Gauges(const char* name, const char* help,
                                std::vector<prometheus::ClientMetric> metrics) {
  return {.name = name, .help = help, .type = prometheus::MetricType::Gauge, .metric = std::move(metrics)};
}

}  // namespace

std::string_view RestartReasonName(RestartReason reason) { return kReasons[static_cast<size_t>(reason)]; }

struct JobMetrics::Impl {
  struct RankSeries {
    prometheus::Labels labels;
    Histogram& step_duration;
    Histogram& collective_duration;
    Counter& collective_bytes;
    Counter& data_wait;
    Counter& flops;
    bool serves = false;  // variables
  };
  // Of the whole job; only in the launcher of rank 0.
  struct JobSeries {
    Counter& steps;
    Counter& samples;
    Counter& exposed_communication;
  };

  prometheus::Registry registry;
  HistogramFamily& step_duration = AddHistogram(registry, "lockstep_step_duration_seconds",
                                                "Time of a training step, as the process measured it.");
  HistogramFamily& collective_duration =
      AddHistogram(registry, "lockstep_collective_duration_seconds",
                   "Part of a training step that went into communication and waiting for it.");
  HistogramFamily& checkpoint_duration = AddHistogram(registry, "lockstep_checkpoint_duration_seconds",
                                                      "Time of writing a checkpoint, by result.");
  CounterFamily& checkpoint_blocking = AddCounter(registry, "lockstep_checkpoint_blocking_seconds_total",
                                                  "Time that the training stood still for checkpoints.");
  CounterFamily& steps =
      AddCounter(registry, "lockstep_steps_total",
                 "Training steps done by the job, those repeated after a restart included.");
  CounterFamily& samples =
      AddCounter(registry, "lockstep_samples_total",
                 "Training samples consumed by the whole job, those repeated after a restart included.");
  CounterFamily& collective_bytes = AddCounter(registry, "lockstep_collective_bytes_total",
                                               "Payload that a process handed to collective operations.");
  CounterFamily& data_wait = AddCounter(registry, "lockstep_data_wait_seconds_total",
                                        "Time that a process's training steps waited for input data.");
  CounterFamily& flops = AddCounter(registry, "lockstep_model_flops_total",
                                    "Floating-point operations of a process's share of the model.");
  CounterFamily& restarts =
      AddCounter(registry, "lockstep_restarts_total",
                 "Restarts of all processes in place, by reason; with role: of one of its processes alone.");
  CounterFamily& exposed_communication =
      AddCounter(registry, "lockstep_exposed_communication_seconds_total",
                 "Time of the job's steps that went into communication which no computing hid, without what "
                 "ranks waited for slower ones.");
  CounterFamily& malformed_events = AddCounter(registry, "lockstep_malformed_events_total",
                                               "Event lines of processes that could not be understood.");
  CounterFamily& gradients_dropped = AddCounter(registry, "lockstep_gradients_dropped_total",
                                                "Gradients that came to parameter servers too late, or were "
                                                "too old, and were not applied; the first server's.");
  GaugeFamily& gradient_age =
      AddGauge(registry, "lockstep_gradient_age_updates",
               "Updates between the parameters of the newest gradient and its own; the first parameter "
               "server's.");
  GaugeFamily& loss = AddGauge(registry, "lockstep_loss", "Loss of the newest training step's global batch.");
  GaugeFamily& loss_average =
      AddGauge(registry, "lockstep_loss_average", "Moving average of the loss over the training steps.");
  GaugeFamily& accuracy = AddGauge(registry, "lockstep_accuracy_ratio", "Accuracy at the newest evaluation.");
  GaugeFamily& learning_rate =
      AddGauge(registry, "lockstep_learning_rate", "Learning rate of the newest training step.");
  GaugeFamily& memory = AddGauge(
      registry, "lockstep_device_memory_bytes",
      "Memory of a device in bytes. With role, replica and process: of one process, as it reported it "
      "or as its limit was set (used, held, peak, context, reserved, limit). With device: of the whole "
      "device, by all programs (device_used).");
  GaugeFamily& checkpoint_success =
      AddGauge(registry, "lockstep_checkpoint_last_success_timestamp_seconds",
               "When the newest checkpoint was complete, in seconds since 1970.");
  GaugeFamily& job_info =
      AddGauge(registry, "lockstep_job_info", "What this launcher runs; always 1, the labels say it.");
  GaugeFamily& build_info = AddGauge(registry, "lockstep_build_info", "What this launcher is; always 1.");

  DeviceMetrics devices{registry, memory};

  std::map<int, RankSeries> ranks;
  std::unique_ptr<JobSeries> job;
};

JobMetrics::JobMetrics(const JobLabels& labels) : impl_(std::make_unique<Impl>()) {
  impl_->job_info
      .Add({{"job", labels.name},
            {"namespace", labels.namespace_name},
            {"strategy", labels.strategy},
            {"framework", labels.framework}})
      .Set(1);
  impl_->build_info.Add({{"version", LOCKSTEP_VERSION}, {"compiler", __VERSION__}}).Set(1);
  impl_->malformed_events.Add({});
}

JobMetrics::~JobMetrics() = default;

void JobMetrics::AddRank(const RankIdentity& identity) {
  Impl& m = *impl_;
  const prometheus::Labels labels = LabelsOf(identity);
  m.ranks.try_emplace(
      identity.rank, Impl::RankSeries{.labels = labels,
                                      .step_duration = m.step_duration.Add(labels, StepBuckets()),
                                      .collective_duration = m.collective_duration.Add(labels, StepBuckets()),
                                      .collective_bytes = m.collective_bytes.Add(labels),
                                      .data_wait = m.data_wait.Add(labels),
                                      .flops = m.flops.Add(labels),
                                      .serves = identity.role == "ps"});
  if (identity.device.memory_limit) {
    prometheus::Labels limited = labels;
    limited.emplace("kind", "limit");
    m.memory.Add(limited).Set(static_cast<double>(*identity.device.memory_limit));
  }
  if (identity.rank != 0 || m.job) return;
  m.job = std::make_unique<Impl::JobSeries>(
      Impl::JobSeries{.steps = m.steps.Add({}),
                      .samples = m.samples.Add({}),
                      .exposed_communication = m.exposed_communication.Add({})});
  // At 0 from the start, so that the first restart, or the first failure, is seen as a change.
  for (const std::string_view reason : kReasons) m.restarts.Add({{"reason", std::string(reason)}});
  for (const char* result : {"success", "failure"})
    m.checkpoint_duration.Add({{"result", result}}, CheckpointBuckets());
}

void JobMetrics::Step(int rank, const contract::StepEvent& event, bool counts_for_job) {
  const auto it = impl_->ranks.find(rank);
  if (it == impl_->ranks.end()) return;
  Impl::RankSeries& series = it->second;
  if (event.seconds > 0) {
    ObserveEach(series.step_duration, event.seconds, event.steps);
    ObserveEach(series.collective_duration, std::max(0.0, event.collective_seconds), event.steps);
  }
  series.collective_bytes.Increment(static_cast<double>(event.collective_bytes));
  series.data_wait.Increment(event.data_wait_seconds);
  series.flops.Increment(event.flops);
  if (series.serves) {
    impl_->gradients_dropped.Add(series.labels).Increment(static_cast<double>(event.gradients_dropped));
    impl_->gradient_age.Add(series.labels).Set(event.gradient_age);
  }
  if (!counts_for_job || !impl_->job) return;
  impl_->job->steps.Increment(static_cast<double>(event.steps));
  impl_->job->samples.Increment(static_cast<double>(event.samples));
  impl_->loss.Add({}).Set(event.loss);
  if (!std::isnan(event.loss_average)) impl_->loss_average.Add({}).Set(event.loss_average);
  impl_->learning_rate.Add({}).Set(event.learning_rate);
}

void JobMetrics::Evaluation(const contract::EvaluationEvent& event) {
  if (event.accuracy >= 0) impl_->accuracy.Add({}).Set(event.accuracy);
}

void JobMetrics::Checkpoint(const contract::CheckpointEvent& event,
                            std::chrono::system_clock::time_point now) {
  impl_->checkpoint_duration.Add({{"result", event.ok ? "success" : "failure"}}, CheckpointBuckets())
      .Observe(std::max(0.0, event.seconds));
  impl_->checkpoint_blocking.Add({}).Increment(std::max(0.0, event.blocking_seconds));
  if (!event.ok) return;
  impl_->checkpoint_success.Add({}).Set(std::chrono::duration<double>(now.time_since_epoch()).count());
}

void JobMetrics::Memory(int rank, const contract::MemoryEvent& event) {
  const auto it = impl_->ranks.find(rank);
  if (it == impl_->ranks.end()) return;
  if (std::find(kMemoryKinds.begin(), kMemoryKinds.end(), event.kind) == kMemoryKinds.end()) return;
  prometheus::Labels labels = it->second.labels;
  labels.emplace("kind", event.kind);
  impl_->memory.Add(labels).Set(static_cast<double>(event.bytes));
}

void JobMetrics::Device(const DeviceSnapshot& device) { impl_->devices.Update(device); }

void JobMetrics::Restart(RestartReason reason) {
  if (impl_->job) impl_->restarts.Add({{"reason", std::string(RestartReasonName(reason))}}).Increment();
}

void JobMetrics::RestartAlone(RestartReason reason, const std::string& role) {
  if (!impl_->job) return;
  impl_->restarts.Add({{"reason", std::string(RestartReasonName(reason))}, {"role", role}}).Increment();
}

void JobMetrics::ExposedCommunication(double seconds) {
  if (impl_->job) impl_->job->exposed_communication.Increment(seconds);
}

void JobMetrics::MalformedEvent() { impl_->malformed_events.Add({}).Increment(); }

std::string JobMetrics::Render(MetricsFormat format, const JobFigures& figures) const {
  std::vector<prometheus::MetricFamily> families = impl_->registry.Collect();
  for (prometheus::MetricFamily& family : CollectProcessMetrics()) families.push_back(std::move(family));
  if (figures.goodput) {
    families.push_back(Gauges("lockstep_goodput_ratio",
                              "Share of the job's time that was productive, of what still counts.",
                              {GaugeOf({}, *figures.goodput)}));
  }
  if (figures.time) {
    families.push_back(
        Gauges("lockstep_productive_seconds",
               "Part of the job's time that no reason of lockstep_lost_work_seconds_total has; "
               "goes down when a restart shows that steps have to be done again.",
               {GaugeOf({}, figures.time->productive)}));
    prometheus::MetricFamily lost{
        .name = "lockstep_lost_work_seconds_total",
        .help =
            "Part of the job's time that was not productive, by reason; with lockstep_productive_seconds "
            "the whole of it.",
        .type = prometheus::MetricType::Counter,
        .metric = {}};
    for (size_t i = 0; i < kLossNames.size(); ++i) {
      lost.metric.push_back(CounterOf({{"reason", std::string(kLossNames[i])}}, figures.time->lost[i]));
    }
    families.push_back(std::move(lost));
  }
  std::vector<prometheus::ClientMetric> delays;
  for (const JobFigures::Delay& delay : figures.delays) {
    delays.push_back(GaugeOf(LabelsOf(delay.rank), delay.seconds));
  }
  if (!delays.empty()) {
    families.push_back(
        Gauges("lockstep_straggler_delay_seconds",
               "Time by which a process's own part of a step, without communication, was longer "
               "than that of the median process of this launcher; over about a second.",
               std::move(delays)));
  }
  return RenderMetrics(std::move(families), format);
}

}  // namespace lockstep::telemetry
