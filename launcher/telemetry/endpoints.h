#pragma once

#include "launcher/http/server.h"
#include "launcher/telemetry/job_metrics.h"
#include "launcher/telemetry/job_state.h"
#include "launcher/telemetry/viewers.h"

namespace lockstep::telemetry {

// Before server.Start(); all others outlive the server's Stop().
//
//   /metrics   Prometheus text or OpenMetrics, by Accept; gzip, as /status
//   /healthz   200 "ok" while the launcher's loop ticks (JobState::Tick); 503 when it has not for 5 s
//   /readyz    200 while the job runs and this generation has made a step (a program that never reports one:
//   once all
//              its processes have run 5 s); otherwise 503 and why
//   /status    status_document.h; with ?curves=1 also the curves: what the page asks for
//   /          page.h
//
// `viewers` is told of the page's questions.
void RegisterEndpoints(http::HttpServer& server, JobState& state, const JobMetrics& metrics,
                       Viewers& viewers);

}  // namespace lockstep::telemetry
