#include "launcher/telemetry/operator_metrics.h"

#include <utility>
#include <vector>

#include "launcher/telemetry/families.h"
#include "launcher/telemetry/process_metrics.h"
#include "launcher/telemetry/render_metrics.h"

namespace lockstep::telemetry {

namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;

constexpr char kController[] = "trainingjob";

const Histogram::BucketBoundaries& Buckets() {
  static const Histogram::BucketBoundaries buckets = {1e-4, 1e-3, 5e-3, 0.01, 0.025, 0.05, 0.1,
                                                      0.25, 0.5,  1,    2.5,  5,     10,   60};
  return buckets;
}
const Histogram::BucketBoundaries& LaunchBuckets() {
  static const Histogram::BucketBoundaries buckets = {0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200};
  return buckets;
}

}  // namespace

struct OperatorMetrics::Impl {
  prometheus::Registry registry;
  CounterFamily& reconciles =
      AddCounter(registry, "controller_runtime_reconcile_total", "Looks at a job, by what came of them.");
  Histogram& reconcile_time =
      AddHistogram(registry, "controller_runtime_reconcile_time_seconds", "Time of a look at a job.")
          .Add({{"controller", kController}}, Buckets());
  Gauge& depth =
      AddGauge(registry, "workqueue_depth", "Jobs that wait for a look.").Add({{"name", kController}});
  Counter& adds =
      AddCounter(registry, "workqueue_adds_total", "Jobs put into the queue.").Add({{"name", kController}});
  Counter& retries = AddCounter(registry, "workqueue_retries_total", "Jobs put there after a failure.")
                         .Add({{"name", kController}});
  Histogram& queue_time =
      AddHistogram(registry, "workqueue_queue_duration_seconds", "Time of a job in the queue.")
          .Add({{"name", kController}}, Buckets());
  Histogram& work_time =
      AddHistogram(registry, "workqueue_work_duration_seconds", "Time from a job's turn to its end.")
          .Add({{"name", kController}}, Buckets());
  CounterFamily& requests = AddCounter(registry, "rest_client_requests_total",
                                       "Requests to the API server; code 0: without an answer.");
  Gauge& leader = AddGauge(registry, "leader_election_master_status", "1 while this process leads.")
                      .Add({{"name", "lockstep-operator"}});
  Histogram& launches = AddHistogram(registry, "lockstep_job_create_to_launch_seconds",
                                     "Time from a job's creation until all its replicas ran.")
                            .Add({}, LaunchBuckets());
  GaugeFamily& build_info = AddGauge(registry, "lockstep_build_info", "What this operator is; always 1.");
};

OperatorMetrics::OperatorMetrics() : impl_(std::make_unique<Impl>()) {
  impl_->build_info.Add({{"version", LOCKSTEP_VERSION}, {"compiler", __VERSION__}}).Set(1);
}

OperatorMetrics::~OperatorMetrics() = default;

void OperatorMetrics::Reconciled(std::string_view result, double seconds) {
  impl_->reconciles.Add({{"controller", kController}, {"result", std::string(result)}}).Increment();
  impl_->reconcile_time.Observe(seconds);
  impl_->work_time.Observe(seconds);
}

void OperatorMetrics::Queued() { impl_->adds.Increment(); }
void OperatorMetrics::Retried() { impl_->retries.Increment(); }
void OperatorMetrics::Taken(double waited_seconds) { impl_->queue_time.Observe(waited_seconds); }
void OperatorMetrics::QueueDepth(size_t depth) { impl_->depth.Set(static_cast<double>(depth)); }

void OperatorMetrics::Request(std::string_view method, std::string_view host, int http_status) {
  impl_->requests
      .Add({{"code", std::to_string(http_status)},
            {"method", std::string(method)},
            {"host", std::string(host)}})
      .Increment();
}

void OperatorMetrics::Leads(bool leads) { impl_->leader.Set(leads ? 1 : 0); }
void OperatorMetrics::Launched(double seconds) { impl_->launches.Observe(seconds); }

std::string OperatorMetrics::Render(MetricsFormat format, const std::map<std::string, int>& jobs) const {
  std::vector<prometheus::MetricFamily> families = impl_->registry.Collect();
  for (prometheus::MetricFamily& family : CollectProcessMetrics()) families.push_back(std::move(family));
  prometheus::MetricFamily phases{
      .name = "lockstep_jobs", .help = "TrainingJobs by phase.", .type = prometheus::MetricType::Gauge};
  for (const auto& [phase, count] : jobs) {
    prometheus::ClientMetric metric;
    metric.label = {{"phase", phase}};
    metric.gauge.value = count;
    phases.metric.push_back(std::move(metric));
  }
  families.push_back(std::move(phases));
  return RenderMetrics(std::move(families), format);
}

}  // namespace lockstep::telemetry
