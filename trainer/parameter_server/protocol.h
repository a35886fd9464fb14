#pragma once

#include <bit>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "common/contract/frame.h"
#include "common/status.h"

// What servers and those who connect to them say to each other, once they know each other
// (common/contract/authentication.h): a frame asks, a frame answers, and floats follow some of them raw, as
// many as both know that there are. Pure.
//
// An `era` is one life of the servers' state, a random number: when a server is lost all of them go back to a
// checkpoint, and what belongs to the era before is void.
namespace lockstep::trainer::parameter_server {

using Deadline = std::chrono::steady_clock::time_point;

inline constexpr size_t kMaxFrameBytes = 64 * 1024;
inline constexpr size_t kMaxLeases = 4096;  // of one update

enum class PeerRole : int64_t { kWorker = 0, kEvaluator = 1, kServer = 2 };

// First, to every server.
struct Attach {
  static constexpr auto kType = contract::FrameType::kAttach;
  PeerRole role = PeerRole::kWorker;
  int64_t index = 0;        // within its role
  int64_t fingerprint = 0;  // of everything that must be the same for the floats to mean the same
};
struct Attached {
  static constexpr auto kType = contract::FrameType::kAttached;
  std::string refused;  // why; empty: welcome
};

// To any server: its parameters, at `least_version` or later. Floats follow the answer if it is kHere.
struct Pull {
  static constexpr auto kType = contract::FrameType::kPull;
  int64_t era = 0;
  int64_t least_version = 0;
  int64_t have_version = -1;  // these are here already
};
enum class Pulled : int64_t { kHere = 0, kUnchanged = 1, kVoid = 2 };
struct Parameters {
  static constexpr auto kType = contract::FrameType::kParameters;
  Pulled result = Pulled::kHere;
  int64_t version = 0;
};

// To every server, before its commit: the gradient of a lease. Floats follow the question.
struct Stage {
  static constexpr auto kType = contract::FrameType::kStage;
  int64_t era = 0;
  int64_t lease = 0;
};
struct Staged {
  static constexpr auto kType = contract::FrameType::kStaged;
  bool kept = false;  // false: the lease or its era is over
};

// To server 0: the gradient is where it is to be.
struct Commit {
  static constexpr auto kType = contract::FrameType::kCommit;
  bool complete = false;  // all servers have kept it; false: it is void, and may be forgotten everywhere
  int64_t era = 0;
  int64_t lease = 0;
  double loss_sum = 0;
  int64_t correct = 0;
  double penalty = 0;
  int64_t version = 0;
};
struct Committed {
  static constexpr auto kType = contract::FrameType::kCommitted;
  bool counts = false;
};

// To server 0: what next? What the worker has not committed is taken from it.
struct Take {
  static constexpr auto kType = contract::FrameType::kTake;
};
enum class Task : int64_t {
  kNothing = 0,  // at the moment: ask again
  kBatch = 1,
  kEvaluate = 2,
  kEnd = 3,   // all is done
  kStop = 4,  // the job was asked to stop
};
struct Work {
  static constexpr auto kType = contract::FrameType::kWork;
  Task task = Task::kNothing;
  int64_t era = 0;
  int64_t lease = 0;
  int64_t epoch = 0;
  int64_t first = 0;  // of the epoch's order
  int64_t count = 0;
  int64_t batch_samples = 0;
  int64_t version = 0;
  bool validation = false;  // kEvaluate: on which samples
  bool test = false;
  // How far the job is, and how much of that this one has not been told yet.
  int64_t step = 0;
  int64_t steps = 0;
  int64_t samples = 0;
  int64_t total_steps = 0;
  double loss = 0;
};

// To server 0, of an evaluation: the parameters have been fetched.
struct HaveParameters {
  static constexpr auto kType = contract::FrameType::kHaveParameters;
};
// To server 0: this one ends.
struct Leave {
  static constexpr auto kType = contract::FrameType::kLeave;
};
// The answer to both.
struct Noted {
  static constexpr auto kType = contract::FrameType::kNoted;
};

// Server 0 to another, over the connection that the other has made; obeyed in order, each answered by Obeyed.
enum class Order : int64_t {
  kNothing = 0,  // are you there?
  kLoad = 1,     // parameters and slots follow: a new era begins with them
  kApply = 2,    // the staged gradients of the leases, summed in this order: the update `version`
  kDrop = 3,     // the leases are void
  kState = 4,    // parameters and slots are to follow the answer
  kFinish = 5,   // all is done
  kStop = 6,     // the job was asked to stop
};
struct Command {
  static constexpr auto kType = contract::FrameType::kCommand;
  Order order = Order::kNothing;
  int64_t era = 0;
  int64_t version = 0;
  std::vector<int64_t> leases;
  std::vector<int64_t> workers;  // of kDrop: whose the leases were
  int64_t epoch = 0;             // of kApply, to be told on
  int64_t samples = 0;
  int64_t total_steps = 0;
  double loss = 0;
};
struct Obeyed {
  static constexpr auto kType = contract::FrameType::kObeyed;
};

// Each message's members in one place, for both directions. `Io` has operator()(member).
template <typename Io>
void Members(Io&& io, Attach& m) {
  io(m.role), io(m.index), io(m.fingerprint);
}
template <typename Io>
void Members(Io&& io, Attached& m) {
  io(m.refused);
}
template <typename Io>
void Members(Io&& io, Pull& m) {
  io(m.era), io(m.least_version), io(m.have_version);
}
template <typename Io>
void Members(Io&& io, Parameters& m) {
  io(m.result), io(m.version);
}
template <typename Io>
void Members(Io&& io, Stage& m) {
  io(m.era), io(m.lease);
}
template <typename Io>
void Members(Io&& io, Staged& m) {
  io(m.kept);
}
template <typename Io>
void Members(Io&& io, Commit& m) {
  io(m.complete), io(m.era), io(m.lease), io(m.loss_sum), io(m.correct), io(m.penalty), io(m.version);
}
template <typename Io>
void Members(Io&& io, Committed& m) {
  io(m.counts);
}
template <typename Io>
void Members(Io&&, Take&) {}
template <typename Io>
void Members(Io&& io, Work& m) {
  io(m.task), io(m.era), io(m.lease), io(m.epoch), io(m.first), io(m.count), io(m.batch_samples);
  io(m.version), io(m.validation), io(m.test), io(m.step), io(m.steps), io(m.samples), io(m.total_steps);
  io(m.loss);
}
template <typename Io>
void Members(Io&&, HaveParameters&) {}
template <typename Io>
void Members(Io&&, Leave&) {}
template <typename Io>
void Members(Io&&, Noted&) {}
template <typename Io>
void Members(Io&& io, Command& m) {
  io(m.order), io(m.era), io(m.version), io(m.leases), io(m.workers), io(m.epoch), io(m.samples);
  io(m.total_steps), io(m.loss);
}
template <typename Io>
void Members(Io&&, Obeyed&) {}

class MessageWriter {
 public:
  explicit MessageWriter(contract::FrameType type) : frame_(type) {}
  template <typename T>
  void operator()(const T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      frame_.String(value);
    } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
      frame_.U32(static_cast<uint32_t>(value.size()));
      for (const int64_t each : value) frame_.I64(each);
    } else if constexpr (std::is_same_v<T, double>) {
      frame_.I64(std::bit_cast<int64_t>(value));
    } else {
      frame_.I64(static_cast<int64_t>(value));
    }
  }
  std::string Finish() { return frame_.Finish(); }

 private:
  contract::FrameWriter frame_;
};

class MessageReader {
 public:
  explicit MessageReader(std::string_view body) : frame_(body) {}
  template <typename T>
  void operator()(T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      value = frame_.String(kMaxFrameBytes);
    } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
      const uint32_t size = frame_.U32();
      for (uint32_t i = 0; i < size && frame_.ok(); ++i) value.push_back(frame_.I64());
    } else if constexpr (std::is_same_v<T, double>) {
      value = std::bit_cast<double>(frame_.I64());
    } else {
      value = static_cast<T>(frame_.I64());
    }
  }
  const contract::FrameParser& frame() const { return frame_; }

 private:
  contract::FrameParser frame_;
};

// A whole frame.
template <typename Message>
std::string Encode(Message message) {
  MessageWriter writer(Message::kType);
  Members(writer, message);
  return writer.Finish();
}

inline contract::FrameType TypeOf(std::string_view body) { return contract::FrameParser(body).type(); }

// The body of a frame; kInvalidArgument if it is not exactly such a message.
template <typename Message>
Result<Message> Decode(std::string_view body) {
  MessageReader reader(body);
  Message message;
  Members(reader, message);
  LOCKSTEP_RETURN_IF_ERROR(reader.frame().Finish());
  if (reader.frame().type() != Message::kType) return InvalidArgument("frame: another message was due");
  return message;
}

}  // namespace lockstep::trainer::parameter_server
