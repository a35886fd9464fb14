#pragma once

#include <string>

#include "launcher/http/server.h"

// The pages at /: one self-contained HTML document each, the same for every request, whose script asks for
// the data. Its sources are in page/.
namespace lockstep::telemetry {

struct Page {
  std::string html;
  // Its Content-Security-Policy: its own style and script by their hashes, requests to where it came from,
  // and nothing else.
  std::string policy;
};

// Of one job, that asks /status?curves=1: for `lockstep run` and `lockstep agent`.
Page JobPage();
// Of many jobs, that asks /jobs: for `lockstep operator`.
Page JobsPage();

// At "/". Before server.Start().
void ServePage(http::HttpServer& server, Page page);

}  // namespace lockstep::telemetry
