#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/telemetry/job_metrics.h"

namespace lockstep::telemetry {

// The operator's registry. Series that controllers written with controller-runtime have go by its names, so
// that existing dashboards and alerts work. Safe from every thread.
class OperatorMetrics {
 public:
  OperatorMetrics();
  ~OperatorMetrics();
  OperatorMetrics(const OperatorMetrics&) = delete;
  OperatorMetrics& operator=(const OperatorMetrics&) = delete;

  // `result`: "success", "requeue", "requeue_after" or "error".
  void Reconciled(std::string_view result, double seconds);
  void Queued();
  void Retried();
  // A job waited this long for its turn.
  void Taken(double waited_seconds);
  void QueueDepth(size_t depth);
  // A request of the API ended. `http_status` 0: no answer.
  void Request(std::string_view method, std::string_view host, int http_status);
  void Leads(bool leads);
  // From a job's creation to the moment when all its replicas ran for the first time.
  void Launched(double seconds);

  // The whole exposition, with `jobs`: how many there are of each phase.
  std::string Render(MetricsFormat format, const std::map<std::string, int>& jobs) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::telemetry
