#pragma once

#include "launcher/http/server.h"
#include "launcher/telemetry/job_metrics.h"
#include "launcher/telemetry/job_state.h"

namespace lockstep::telemetry {

// Before server.Start(); both others outlive the server's Stop().
//
//   /metrics   Prometheus text or OpenMetrics, by Accept
//   /healthz   200 "ok" while the launcher's loop ticks (JobState::Tick); 503 when it has not for 5 s
//   /readyz    200 while the job runs and this generation has made a step (a program that never reports one:
//   once all
//              its processes have run 5 s); otherwise 503 and why
//   /status    status_document.h
//   /          status_page.h
void RegisterEndpoints(http::HttpServer& server, const JobState& state, const JobMetrics& metrics);

}  // namespace lockstep::telemetry
