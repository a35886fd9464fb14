#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::telemetry {

struct GenerationRecord {
  int generation = 0;
  int world_size = 0;
  double began = 0;             // seconds after the job's start
  std::optional<double> ended;  // likewise; empty: it runs
  // Why it ended: as Failure::reason and ::message have it, or "Resized", "Succeeded"; empty while it runs,
  // and where nobody has said it.
  std::string reason = {};
  std::string message = {};  // at most kMaxMessage bytes
  int restarted_alone = 0;   // how often a rank was started again in it while the others went on
};

// The generations of a job and why each ended; the newest kMaxRecords of them. Not thread-safe.
class GenerationLog {
 public:
  static constexpr size_t kMaxRecords = 100;
  static constexpr size_t kMaxMessage = 300;

  // Ends the one before, if nothing did.
  void Began(int generation, int world_size, double seconds);
  // The first word on it counts. Does nothing when none runs.
  void Ended(const std::string& reason, const std::string& message, double seconds);
  void RestartedAlone();

  const std::vector<GenerationRecord>& records() const { return records_; }
  // Older ones that are no longer in it.
  int64_t forgotten() const { return forgotten_; }

 private:
  std::vector<GenerationRecord> records_;  // by time
  int64_t forgotten_ = 0;
};

}  // namespace lockstep::telemetry
