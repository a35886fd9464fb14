#pragma once

#include <map>
#include <string>
#include <string_view>
#include <variant>

#include "common/status.h"

// What the launcher tells a process that can regroup: one JSON object a line, on the pipe whose number is in
// LOCKSTEP_CONTROL_FD (docs/contract.md, "Regrouping"). Unknown keys are ignored, so that either side may be
// newer than the other.
namespace lockstep::contract {

inline constexpr size_t kMaxControlBytes = 64 * 1024;  // a line with its newline

// {"control":"regroup"}: this generation is over. Drop what is not committed, answer with the event
// "regroup", and wait for the next line.
struct RegroupControl {};

// {"control":"generation","environment":{"RANK":"3", …}}: go on as this process of a new generation.
struct GenerationControl {
  // All that the contract sets, by name. What is not in it is not set any more; what the process got from
  // elsewhere stays.
  std::map<std::string, std::string> environment;
};

using Control = std::variant<RegroupControl, GenerationControl>;

// One line with its newline. kInvalidArgument where it would be longer than kMaxControlBytes, or a variable's
// name or value could not be one of an environment or is not UTF-8.
Result<std::string> EncodeControl(const Control& control);

// `line` without its newline. kInvalidArgument for what is no control line.
Result<Control> ParseControl(std::string_view line);

}  // namespace lockstep::contract
