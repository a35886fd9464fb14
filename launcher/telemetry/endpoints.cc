#include "launcher/telemetry/endpoints.h"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launcher/telemetry/page.h"
#include "launcher/telemetry/status_document.h"

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

void RegisterEndpoints(http::HttpServer& server, JobState& state, const JobMetrics& metrics,
                       Viewers& viewers) {
  server.Handle("/healthz", [&state](const Request&) { return Health(state); });
  server.Handle("/readyz", [&state](const Request&) { return Readiness(state); });
  server.Handle("/metrics", [&state, &metrics](const Request& request) {
    const MetricsFormat format = NegotiateMetricsFormat(request.header("accept"));
    return Response{.content_type = std::string(MetricsContentType(format)),
                    .body = metrics.Render(format, state.Figures(Clock::now())),
                    .headers = {{"Vary", "Accept"}},
                    .compresses = true};
  });
  server.Handle("/status", [&state, &viewers](const Request& request) {
    const auto now = Clock::now();
    std::optional<std::vector<CurvePoint>> curve;
    if (request.parameter("curves") == "1") {
      viewers.Looked(now);
      curve = state.curve();
    }
    return Response{.content_type = "application/json",
                    .body = StatusDocument(state.Snapshot(now), curve),
                    .compresses = true};
  });
  ServePage(server, JobPage());
}

}  // namespace lockstep::telemetry
