#include "launcher/telemetry/generation_log.h"

namespace lockstep::telemetry {

void GenerationLog::Began(int generation, int world_size, double seconds) {
  Ended("", "", seconds);
  if (records_.size() == kMaxRecords) {
    records_.erase(records_.begin());
    forgotten_ += 1;
  }
  records_.push_back({.generation = generation, .world_size = world_size, .began = seconds});
}

void GenerationLog::Ended(const std::string& reason, const std::string& message, double seconds) {
  if (records_.empty() || records_.back().ended) return;
  GenerationRecord& record = records_.back();
  record.ended = seconds;
  record.reason = reason;
  record.message = message.substr(0, kMaxMessage);
}

void GenerationLog::RestartedAlone() {
  if (!records_.empty()) records_.back().restarted_alone += 1;
}

}  // namespace lockstep::telemetry
