#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/contract/event.h"
#include "launcher/process/child_process.h"
#include "launcher/spec/log_pattern.h"

namespace lockstep::job {

// Makes steps of what programs that write no events print (spec.program.progress.logPattern). One generation.
//
// Lines end with a newline or, as a progress bar has it, with a carriage return. What a line stands for is
// counted from the line before it that matched; a count that starts over, in each epoch say, goes on from
// where it was.
class LogProgress {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // By rank; the others' output says nothing.
  explicit LogProgress(std::map<int, spec::LogPattern> patterns = {});

  // Bytes as they were read. The last step that they tell of, with the earlier ones in it.
  std::optional<contract::StepEvent> Read(int rank, process::OutputStream stream, std::string_view bytes,
                                          Time now);

 private:
  // A number that only grows, of one that may start over.
  struct Count {
    int64_t last = 0, before = 0;
    int64_t Grown(int64_t now);
    int64_t value() const { return before + last; }
  };
  struct Rank {
    explicit Rank(spec::LogPattern its) : pattern(std::move(its)) {}
    spec::LogPattern pattern;
    std::string partial[2];
    Count step, samples;
    bool began = false;
    bool epochs_from_zero = false;
    Time last{};
  };
  static void ReadLine(Rank& rank, std::string_view line, std::optional<contract::StepEvent>& event);

  std::map<int, Rank> ranks_;
};

}  // namespace lockstep::job
