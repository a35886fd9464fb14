#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/status.h"
#include "launcher/rendezvous/membership.h"

// What two launchers say to each other, once the handshake of contract/authentication.h has told them who
// they are. A follower sends Join and gets Joined; from then on both send a Heartbeat whenever an interval
// has passed. Pure.
namespace lockstep::rendezvous {

inline constexpr size_t kMaxControlFrameBytes = 1 << 20;
inline constexpr size_t kMaxReportBytes = 64 * 1024;
inline constexpr size_t kMaxDigestBytes = 128;
inline constexpr size_t kMaxHostBytes = 255;
inline constexpr size_t kMaxInstanceBytes = 64;

// Follower to leader.
struct JoinMessage {
  std::string instance = {};  // Membership::Options: tells a launcher's return from another's coming
  std::string manifest_digest = {};
  int32_t replicas = 0;
  std::string host = {};  // under which the others reach it; empty: as the leader sees it
};
struct ReadyMessage {
  int32_t processes = 0;
};
struct StoppedMessage {
  int64_t generation = 0;
  int32_t exit_code = 0;
};
struct FailedMessage {
  int64_t generation = 0;
  FailureReport report = {};  // its replica is not sent: the connection says it
};
struct DoneMessage {
  int64_t generation = 0;
};
struct LeavingMessage {
  std::string why = {};
};
struct FinishSeenMessage {};

// Leader to follower.
struct JoinedMessage {
  Status status = {};  // not OK: refused
};
struct StartMessage {
  int64_t generation = 0;
  std::vector<Member> replicas = {};
  std::string master_address = {};
  int32_t master_port = 0;
  int32_t incarnation = 0;  // of the processes of the one it is sent to
};
// One process is started again within the generation.
struct RestartMessage {
  int64_t generation = 0;
  int32_t process = 0;
  int32_t incarnation = 0;
  int64_t delay_ms = 0;
};
struct StopMessage {
  GenerationStop stop = {};
};
struct FinishMessage {
  int32_t exit_code = 0;
  std::string message = {};
};

// Both.
struct HeartbeatMessage {};

using ControlMessage = std::variant<JoinMessage, ReadyMessage, StoppedMessage, FailedMessage, DoneMessage,
                                    LeavingMessage, FinishSeenMessage, JoinedMessage, StartMessage,
                                    RestartMessage, StopMessage, FinishMessage, HeartbeatMessage>;

// One frame, header included. Texts over their maximum are cut.
std::string EncodeControl(const ControlMessage& message);

// kInvalidArgument for what is none of them.
Result<ControlMessage> DecodeControl(std::string_view body);

}  // namespace lockstep::rendezvous
