#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/status.h"

namespace re2 {
class RE2;
}

namespace lockstep::spec {

// What a line of output says of the training.
struct LogStep {
  int64_t step = 0;
  std::optional<int64_t> total = {};    // steps that there will be
  std::optional<int64_t> epoch = {};    // as it is written; most count from 1
  std::optional<int64_t> samples = {};  // seen so far
  double loss = std::numeric_limits<double>::quiet_NaN();
};

// spec.program.progress.logPattern: a regular expression with groups named as LogStep's members, in RE2's
// syntax (https://github.com/google/re2/wiki/Syntax), whose time is linear in the line's length; (?<name>
// means
// (?P<name>. May be used by several threads.
class LogPattern {
 public:
  // kInvalidArgument: it is no regular expression, has no group `step`, or one that nobody reads; the message
  // goes after "logPattern ".
  static Result<LogPattern> Compile(const std::string& text);

  // What the first match within the line says; empty: there is none, or its step is no number. Of the other
  // groups those that hold no number are left out.
  std::optional<LogStep> Match(std::string_view line) const;

 private:
  LogPattern() = default;

  std::shared_ptr<const re2::RE2> expression_;
  // The groups' indices; -1: it has none.
  int step_ = -1, total_ = -1, epoch_ = -1, samples_ = -1, loss_ = -1;
};

}  // namespace lockstep::spec
