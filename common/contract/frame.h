#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/status.h"

// Framing of everything that goes over the rendezvous port, and of what parameter servers say: a frame is its
// length (32 bits, big-endian, of what follows) and that many bytes, the first of which is a FrameType.
// Numbers are big-endian, byte strings carry a 32-bit length. Nothing here does I/O.
namespace lockstep::contract {

enum class FrameType : uint8_t {
  // The handshake, both ways (authentication.h).
  kHello = 1,
  kChallenge = 2,
  kAnswer = 3,
  kWelcome = 4,
  // A rank and the store (store_protocol.h).
  kSet = 16,
  kGet = 17,
  kAdd = 18,
  kWait = 19,
  kReply = 20,
  // Two launchers (launcher/rendezvous/control_message.h).
  kHeartbeat = 32,
  kJoin = 33,
  kReady = 34,
  kStopped = 35,
  kFailed = 36,
  kDone = 37,
  kLeaving = 38,
  kJoined = 39,
  kStart = 40,
  kStop = 41,
  kFinish = 42,
  kFinishSeen = 43,
  kRestart = 44,
  // A parameter server and those it serves (trainer/parameter_server/protocol.h), on ports of their own.
  kAttach = 64,
  kAttached = 65,
  kPull = 66,
  kParameters = 67,
  kStage = 68,
  kStaged = 69,
  kCommit = 70,
  kCommitted = 71,
  kTake = 72,
  kWork = 73,
  kHaveParameters = 74,
  kLeave = 75,
  kNoted = 76,
  kCommand = 77,
  kObeyed = 78,
};

inline constexpr size_t kFrameHeaderBytes = 4;
inline constexpr size_t kMaxHandshakeFrameBytes = 256;  // what a stranger can make us keep

// Builds one frame.
class FrameWriter {
 public:
  explicit FrameWriter(FrameType type);

  FrameWriter& U8(uint8_t value);
  FrameWriter& U32(uint32_t value);
  FrameWriter& I64(int64_t value);
  FrameWriter& Raw(std::string_view bytes);     // without a length
  FrameWriter& String(std::string_view bytes);  // with its length

  // The frame with its header. The writer is empty afterwards.
  std::string Finish();

 private:
  std::string bytes_;
};

// Reads the body of a frame (what follows the header). The first read past the end makes all later ones
// return zeros and empty strings, so that a decoder checks once, with Finish().
class FrameParser {
 public:
  // Views `body`, which must outlive the parser and what String() and Raw() return.
  explicit FrameParser(std::string_view body);

  FrameType type() const { return type_; }
  uint8_t U8();
  uint32_t U32();
  int64_t I64();
  std::string_view Raw(size_t count);
  std::string_view String(size_t max_bytes);  // longer: as if past the end

  // Whether all reads so far found what they asked for.
  bool ok() const { return !failed_; }

  // kInvalidArgument if the body was shorter or longer than what was read, or a string over its maximum.
  Status Finish() const;

 private:
  std::string_view rest_;
  FrameType type_{};
  bool failed_ = false;
};

// Cuts a stream into frames. Keeps at most one frame of `max_frame_bytes`, and what was read beyond it.
class FrameBuffer {
 public:
  explicit FrameBuffer(size_t max_frame_bytes) : max_frame_bytes_(max_frame_bytes) {}

  void set_max_frame_bytes(size_t bytes) { max_frame_bytes_ = bytes; }

  void Append(std::string_view bytes);

  // The body of the next whole frame, valid until the next call of anything here; nothing if more bytes are
  // needed. kInvalidArgument, from then on, for an empty frame or one over the maximum: the stream is lost.
  Result<std::optional<std::string_view>> Next();

 private:
  size_t max_frame_bytes_;
  std::string buffer_;
  size_t consumed_ = 0;
};

}  // namespace lockstep::contract
