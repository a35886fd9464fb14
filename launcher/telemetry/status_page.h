#pragma once

#include <string>
#include <string_view>

#include "launcher/telemetry/job_state.h"

namespace lockstep::telemetry {

// The page at /: one self-contained HTML document without scripts that reloads itself while the job is not
// done.
std::string StatusPage(const JobSnapshot& snapshot);

// The Content-Security-Policy it is served with: nothing but its own style sheet, by hash.
std::string_view StatusPagePolicy();
// The text between its <style> tags, for the test that checks the hash.
std::string_view StatusPageStyle();

}  // namespace lockstep::telemetry
