#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract/event.h"
#include "common/unique_fd.h"

namespace lockstep::telemetry {

struct Failure;
struct GraphNode;
struct Progress;

// What a run leaves of itself in its folder, for `lockstep runs`, a JSON object a line:
//
//   metrics.jsonl   {"time": …, "seconds": 12.5, "step": 100, "epoch": 0, "loss": 0.31, "lossAverage": 0.33,
//                    "accuracy": 0.95, "learningRate": 0.001, "samplesPerSecond": 90321}: every step at
//                    first, after each kLinesAStride lines only every second one of those that came before
//   events.jsonl    {"time": …, "event": "Generation" | "RankExited" | "Restarting" | "Evaluation" |
//                    "Checkpoint" | "Resumed" | "Finished", …}: the first kMostEvents of them, and the last
//
//   tensorboard/events.out.tfevents…   the same steps and evaluations as scalars, and the graph of layers
//                    (tensorboard_event.h); a file each launcher that was started
//
// so that none grows without bound. Times are RFC 3339 with milliseconds. What cannot be written (a full
// disk) is left out, and said once; training goes on. One thread at a time.
class RunRecord {
 public:
  using WallTime = std::chrono::system_clock::time_point;
  static constexpr int64_t kLinesAStride = 1000;
  static constexpr int64_t kMostEvents = 10'000;

  // Appends to what is there, from a launcher that was started again. `warn` outlives this.
  RunRecord(const std::string& folder, std::function<void(const std::string&)> warn);

  // Whether it would be kept. Cheap.
  bool WantsStep(int64_t step) const { return step >= next_step_ || step < last_step_; }
  void Step(const Progress& progress, double seconds);

  void Generation(int generation, WallTime time);
  // Of layers; kept when it is another one than before. An empty one is none.
  void Graph(const std::vector<GraphNode>& nodes, WallTime time);
  void RankExited(int rank, int exit_code, WallTime time);
  void Restarting(std::string_view reason, const Failure* failure, WallTime time);
  // `step`: the last one before it.
  void Evaluation(const contract::EvaluationEvent& event, int64_t step, WallTime time);
  void Checkpoint(const contract::CheckpointEvent& event, WallTime time);
  void Resumed(int64_t step, WallTime time);
  // `progress`: the last one, kept in any case; null: there was none.
  void Finished(bool succeeded, const Progress* progress, double seconds, WallTime time);

 private:
  void WriteStep(const Progress& progress, double seconds);
  // False: there are too many.
  bool WriteEvent(const std::string& line, bool last = false);
  UniqueFd Open(const std::string& path);
  UniqueFd OpenTensorboard(const std::string& folder);
  void Append(const UniqueFd& file, const std::string& line);
  void WarnOnce(const std::string& why);

  std::function<void(const std::string&)> warn_;
  bool warned_ = false;
  UniqueFd metrics_, events_, tensorboard_;
  int64_t stride_ = 1;
  int64_t lines_ = 0;  // since the stride changed
  int64_t next_step_ = 0;
  int64_t last_step_ = 0;  // kept
  int64_t event_count_ = 0;
  std::string graph_;
};

}  // namespace lockstep::telemetry
