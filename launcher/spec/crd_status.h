#pragma once

#include <nlohmann/json_fwd.hpp>

namespace lockstep::spec {

// The schema of a TrainingJob's status, which is the operator's and in no manifest.
nlohmann::ordered_json StatusSchema();

// additionalPrinterColumns: what `kubectl get tjob` shows.
nlohmann::ordered_json PrinterColumns();

}  // namespace lockstep::spec
