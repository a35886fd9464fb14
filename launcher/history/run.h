#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/status.h"

// history/: what runs have left in their folders (job/run_folder.h, telemetry/run_record.h), read again.
namespace lockstep::history {

// A line of metrics.jsonl.
struct Point {
  double seconds = 0;  // since the run began
  int64_t step = 0;
  std::optional<double> loss, accuracy, samples_per_second;
};

struct Run {
  std::string folder;
  std::string name;         // "digits/20260131T120000Z-4711": of the job, and its folder's own
  std::string status_text;  // status.json as it is
  // Of it; empty or 0 where it does not say.
  std::string phase, start_time;
  std::optional<double> took_seconds;
  std::optional<int64_t> step;
  std::string loss, accuracy;
  int restarts = 0;
};

// kNotFound: the folder is none of a run. What the file says otherwise than we write it is left out.
Result<Run> ReadRun(const std::string& folder);

// metrics.jsonl; empty when there is none. Lines that are none of ours (the last one of a full disk) are
// left out.
std::vector<Point> ReadPoints(const std::string& folder);

// events.jsonl for people, a line each: "12:00:03  RankExited  rank 2, exit code 137". At most the last
// `most`.
std::vector<std::string> ReadEvents(const std::string& folder, size_t most);

}  // namespace lockstep::history
