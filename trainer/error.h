#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "common/contract/exit_codes.h"

// What ends a trainer process: thrown anywhere, caught once in main, reported as an error event and turned
// into the documented exit code.
namespace lockstep::trainer {

class Error : public std::runtime_error {
 public:
  // `kind` is a short CamelCase word ("BadData"); the message says what, where, and what would be right.
  Error(int exit_code, std::string kind, const std::string& message)
      : std::runtime_error(message), exit_code_(exit_code), kind_(std::move(kind)) {}

  int exit_code() const { return exit_code_; }
  const std::string& kind() const { return kind_; }

 private:
  int exit_code_;
  std::string kind_;
};

// Restarting would not help.
struct BadData : Error {
  explicit BadData(const std::string& message) : Error(contract::kExitPermanent, "BadData", message) {}
};
struct BadModel : Error {
  explicit BadModel(const std::string& message) : Error(contract::kExitPermanent, "BadModel", message) {}
};
struct Unsupported : Error {
  explicit Unsupported(const std::string& message)
      : Error(contract::kExitPermanent, "Unsupported", message) {}
};

// Another run of the job has taken this one's place: it must not go on.
struct Superseded : Error {
  explicit Superseded(const std::string& message) : Error(contract::kExitSuperseded, "Superseded", message) {}
};

// Restarting may help.
struct CollectiveLost : Error {
  explicit CollectiveLost(const std::string& message)
      : Error(contract::kExitCollectiveLost, "CollectiveLost", message) {}
};
struct RendezvousFailed : Error {
  explicit RendezvousFailed(const std::string& message)
      : Error(contract::kExitRendezvous, "RendezvousFailed", message) {}
};
struct DeviceLost : Error {
  explicit DeviceLost(const std::string& message) : Error(contract::kExitDeviceLost, "DeviceLost", message) {}
};
struct OutOfMemory : Error {
  explicit OutOfMemory(const std::string& message)
      : Error(contract::kExitOutOfMemory, "OutOfMemory", message) {}
};

}  // namespace lockstep::trainer
