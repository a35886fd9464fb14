#include "launcher/telemetry/endpoints.h"

#include <chrono>
#include <string>

#include "launcher/telemetry/status_document.h"
#include "launcher/telemetry/status_page.h"

namespace lockstep::telemetry {

namespace {

using Clock = std::chrono::steady_clock;
using http::Request;
using http::Response;

Response Health(const JobState& state) {
  const auto silence = state.LoopSilence(Clock::now());
  if (silence <= kLoopSilenceLimit) return {.body = "ok\n"};
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(silence).count();
  return {.status = 503, .body = "the launcher's loop has not moved for " + std::to_string(seconds) + " s\n"};
}

Response Readiness(const JobState& state) {
  const JobSnapshot snapshot = state.Snapshot(Clock::now());
  if (snapshot.ready) return {.body = "ok\n"};
  return {.status = 503, .body = snapshot.ready_reason + "\n"};
}

}  // namespace

void RegisterEndpoints(http::HttpServer& server, const JobState& state, const JobMetrics& metrics) {
  server.Handle("/healthz", [&state](const Request&) { return Health(state); });
  server.Handle("/readyz", [&state](const Request&) { return Readiness(state); });
  server.Handle("/metrics", [&state, &metrics](const Request& request) {
    const MetricsFormat format = NegotiateMetricsFormat(request.header("accept"));
    return Response{.content_type = std::string(MetricsContentType(format)),
                    .body = metrics.Render(format, state.Snapshot(Clock::now()).goodput),
                    .headers = {{"Vary", "Accept"}}};
  });
  server.Handle("/status", [&state](const Request&) {
    return Response{.content_type = "application/json", .body = StatusDocument(state.Snapshot(Clock::now()))};
  });
  server.Handle("/", [&state](const Request&) {
    return Response{.content_type = "text/html; charset=utf-8",
                    .body = StatusPage(state.Snapshot(Clock::now())),
                    .headers = {{"Content-Security-Policy", std::string(StatusPagePolicy())},
                                {"Referrer-Policy", "no-referrer"}}};
  });
}

}  // namespace lockstep::telemetry
