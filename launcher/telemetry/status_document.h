#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/telemetry/job_state.h"

namespace lockstep::telemetry {

// The JSON of /status: the manifest's status block as far as one launcher knows it (same names, same types:
// rates, loss and accuracy are strings there, since Kubernetes' APIs have no floats), and `ranks`. Times are
// RFC 3339, UTC. With `curve`, also that, in plain numbers: a column for each quantity.
std::string StatusDocument(const JobSnapshot& snapshot,
                           const std::optional<std::vector<CurvePoint>>& curve = {});

}  // namespace lockstep::telemetry
