#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>

#include "common/status.h"

// What a process tells its launcher: one JSON object a line, on the inherited pipe (docs/contract.md,
// "Events"). Unknown keys are ignored, so that either side may be newer than the other.
namespace lockstep::contract {

inline constexpr size_t kMaxEventBytes = 64 * 1024;  // a longer line is malformed

// {"event":"ready"}: joined the others, about to take the first step.
struct ReadyEvent {
  bool regroups = false;  // understands the lines of control_line.h
  // Of a model that is cut, or computed on several devices: the layers that the process has, for people.
  std::string layers = {};
};

// {"event":"layer","index":0,"name":"dense","type":"Dense","output":"256","device":"/job:worker/…"}: a layer
// that the process has, one of those that follow one another in the model; before it is ready.
struct LayerEvent {
  int64_t index = 0;   // in the whole model, from the input on
  std::string name;    // "conv2d_1"
  std::string type;    // "Conv2D"
  std::string output;  // the shape of what it makes of a sample: "24,24,64"
  std::string device;  // DeviceName::Full: "/job:worker/replica:0/task:1/device:GPU:0"
};

// {"event":"regroup","step":120}: this generation is over for the process; it waits for the next one.
struct RegroupEvent {
  int64_t step = 0;  // that it holds, committed; it may hold the one after it too
};

// {"event":"phase","phase":"Evaluating"}: busy with something that takes no steps. Initializing | Training |
// Evaluating | Checkpointing.
struct PhaseEvent {
  std::string phase;
};

// {"event":"step", …}: a step of the whole job is done, or several short ones.
struct StepEvent {
  int64_t step = 0;         // done so far, over all epochs and generations: 1 after the first
  int64_t steps = 1;        // that this line stands for: samples, seconds, bytes and flops are their sums
  int64_t total_steps = 0;  // 0: not known
  int64_t epoch = 0;        // from 0
  int64_t samples = 0;      // over all ranks
  // Of the last global batch; NaN: not told, or not a finite number.
  double loss = std::numeric_limits<double>::quiet_NaN();
  double loss_average = std::numeric_limits<double>::quiet_NaN();  // moving, over the steps; NaN: not told
  double learning_rate = 0;
  double seconds = 0;             // this rank's wall time
  double collective_seconds = 0;  // of it, waiting for or doing communication
  double data_wait_seconds = 0;   // of it, waiting for data
  int64_t collective_bytes = 0;   // this rank's all-reduced payload
  double flops = 0;               // this rank's model FLOP
  // Of parameter servers; server 0 tells.
  int64_t gradients_dropped = 0;  // that came too late
  double gradient_age = 0;        // updates since the parameters it was computed with, of the last gradient
};

// {"event":"evaluation", …}: a pass over the validation or the test samples.
struct EvaluationEvent {
  std::string split;  // "validation" | "test"
  int64_t epoch = 0;
  double loss = 0;
  double accuracy = -1;  // -1: not measured
  double seconds = 0;
};

// {"event":"checkpoint", …}
struct CheckpointEvent {
  int64_t step = 0;
  std::string path;
  double seconds = 0;           // until it was durable
  double blocking_seconds = 0;  // of the training, which stood still for it
  bool ok = true;               // false: not written, training goes on
  std::string message;          // why not
};

// {"event":"memory", …}: what the process holds on its device.
struct MemoryEvent {
  int64_t bytes = 0;
  // "used" by what the process computes | "held" by its pool | "peak" of used | "limit" | "context": what the
  // driver and libraries take besides | "reserved"
  std::string kind;
};

// {"event":"resumed","step":100}: goes on after that step, from a checkpoint or from what a process of the
// generation before holds.
struct ResumedEvent {
  int64_t step = 0;
};

// {"event":"error", …}: what will end the process, in words.
struct ErrorEvent {
  std::string kind;  // "OutOfMemory", "CollectiveLost", "BadData" …
  std::string message;
};

using Event = std::variant<ReadyEvent, PhaseEvent, StepEvent, EvaluationEvent, CheckpointEvent, MemoryEvent,
                           ResumedEvent, ErrorEvent, RegroupEvent, LayerEvent>;

// One line with its newline.
std::string EncodeEvent(const Event& event);

// `line` without its newline. kInvalidArgument for what is not an event; numbers that are not finite, and
// negative counts, are refused too.
Result<Event> ParseEvent(std::string_view line);

}  // namespace lockstep::contract
