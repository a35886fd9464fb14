#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/telemetry/operator_metrics.h"

namespace lockstep::op {
namespace {

using telemetry::MetricsFormat;
using telemetry::OperatorMetrics;
using testing::HasSubstr;

TEST(OperatorMetricsTest, GoByTheNamesThatDashboardsKnow) {
  OperatorMetrics metrics;
  metrics.Reconciled("success", 0.002);
  metrics.Queued();
  metrics.Retried();
  metrics.Taken(0.5);
  metrics.QueueDepth(3);
  metrics.Request("GET", "10.0.0.1:443", 200);
  metrics.Leads(true);
  metrics.Launched(4);
  const std::string text = metrics.Render(MetricsFormat::kPrometheusText, {{"Running", 2}, {"Failed", 0}});
  for (const char* line : {
           R"(controller_runtime_reconcile_total{controller="trainingjob",result="success"} 1)",
           R"(controller_runtime_reconcile_time_seconds_count{controller="trainingjob"} 1)",
           R"(workqueue_adds_total{name="trainingjob"} 1)",
           R"(workqueue_retries_total{name="trainingjob"} 1)",
           R"(workqueue_queue_duration_seconds_sum{name="trainingjob"} 0.5)",
           R"(workqueue_work_duration_seconds_count{name="trainingjob"} 1)",
           R"(workqueue_depth{name="trainingjob"} 3)",
           R"(rest_client_requests_total{code="200",host="10.0.0.1:443",method="GET"} 1)",
           R"(leader_election_master_status{name="lockstep-operator"} 1)",
           R"(lockstep_job_create_to_launch_seconds_bucket{le="5"} 1)",
           R"(lockstep_jobs{phase="Running"} 2)",
           R"(lockstep_jobs{phase="Failed"} 0)",
           "process_resident_memory_bytes",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(metrics.Render(MetricsFormat::kOpenMetrics, {}), HasSubstr("# EOF"));
}

}  // namespace
}  // namespace lockstep::op
