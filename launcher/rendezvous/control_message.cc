#include "launcher/rendezvous/control_message.h"

#include <utility>

#include "common/contract/frame.h"

namespace lockstep::rendezvous {

namespace {

using contract::FrameParser;
using contract::FrameType;
using contract::FrameWriter;

constexpr size_t kMaxTextBytes = 16 * 1024;
constexpr uint32_t kMaxReplicas = 4096;

class Writer {
 public:
  explicit Writer(FrameType type) : writer_(type) {}
  void Number(const int64_t& value) { writer_.I64(value); }
  void Number(const int32_t& value) { writer_.U32(static_cast<uint32_t>(value)); }
  void Flag(const bool& value) { writer_.U8(value ? 1 : 0); }
  void Text(const std::string& value, size_t max_bytes) {
    writer_.String(std::string_view(value).substr(0, max_bytes));
  }
  template <typename T>
  void Enumeration(const T& value, T) {
    writer_.U8(static_cast<uint8_t>(value));
  }
  template <typename T, typename Each>
  void List(const std::vector<T>& values, Each each) {
    writer_.U32(static_cast<uint32_t>(values.size()));
    for (const T& value : values) each(const_cast<T&>(value));
  }
  std::string Finish() { return writer_.Finish(); }

 private:
  FrameWriter writer_;
};

class Reader {
 public:
  explicit Reader(std::string_view body) : parser_(body) {}
  void Number(int64_t& value) { value = parser_.I64(); }
  void Number(int32_t& value) { value = static_cast<int32_t>(parser_.U32()); }
  void Flag(bool& value) { value = parser_.U8() != 0; }
  void Text(std::string& value, size_t max_bytes) { value = parser_.String(max_bytes); }
  template <typename T>
  void Enumeration(T& value, T last) {
    const uint8_t number = parser_.U8();
    if (number > static_cast<uint8_t>(last)) out_of_range_ = true;
    value = static_cast<T>(number);
  }
  template <typename T, typename Each>
  void List(std::vector<T>& values, Each each) {
    const uint32_t count = parser_.U32();
    if (count > kMaxReplicas) out_of_range_ = true;
    for (uint32_t i = 0; i < count && !out_of_range_ && parser_.ok(); ++i) each(values.emplace_back());
  }
  Status Finish() const {
    if (out_of_range_) return InvalidArgument("frame: a value in it is out of range");
    return parser_.Finish();
  }

 private:
  FrameParser parser_;
  bool out_of_range_ = false;
};

// Each message's fields in one place, for both directions.
template <typename Io>
void Fields(Io& io, JoinMessage& m) {
  io.Text(m.instance, kMaxInstanceBytes);
  io.Text(m.manifest_digest, kMaxDigestBytes);
  io.Number(m.replicas);
  io.Text(m.host, kMaxHostBytes);
}
template <typename Io>
void Fields(Io& io, ReadyMessage& m) {
  io.Number(m.processes);
}
template <typename Io>
void Fields(Io& io, StoppedMessage& m) {
  io.Number(m.generation);
  io.Number(m.exit_code);
}
template <typename Io>
void Fields(Io& io, FailedMessage& m) {
  io.Number(m.generation);
  io.Number(m.report.process);
  io.Number(m.report.rank);
  io.Text(m.report.role, kMaxHostBytes);
  io.Number(m.report.role_rank);
  io.Flag(m.report.own_trainer);
  io.Number(m.report.exit_code);
  io.Number(m.report.signal);
  io.Text(m.report.reason, kMaxTextBytes);
  io.Text(m.report.message, kMaxReportBytes);
  io.List(m.report.last_lines, [&](std::string& line) { io.Text(line, kMaxLastLineBytes); });
}
template <typename Io>
void Fields(Io& io, DoneMessage& m) {
  io.Number(m.generation);
}
template <typename Io>
void Fields(Io& io, LeavingMessage& m) {
  io.Text(m.why, kMaxTextBytes);
}
template <typename Io>
void Fields(Io&, FinishSeenMessage&) {}
template <typename Io>
void Fields(Io& io, JoinedMessage& m) {
  StatusCode code = m.status.code();
  std::string message = m.status.message();
  io.Enumeration(code, StatusCode::kInternal);
  io.Text(message, kMaxTextBytes);
  m.status = Status(code, std::move(message));
}
template <typename Io>
void Fields(Io& io, StartMessage& m) {
  io.Number(m.generation);
  io.List(m.replicas, [&](Member& member) {
    io.Number(member.replica);
    io.Text(member.host, kMaxHostBytes);
    io.Number(member.processes);
  });
  io.Text(m.master_address, kMaxHostBytes);
  io.Number(m.master_port);
  io.Number(m.incarnation);
}
template <typename Io>
void Fields(Io& io, RestartMessage& m) {
  io.Number(m.generation);
  io.Number(m.process);
  io.Number(m.incarnation);
  io.Number(m.delay_ms);
}
template <typename Io>
void Fields(Io& io, StopMessage& m) {
  io.Number(m.stop.generation);
  io.Enumeration(m.stop.cause, StopCause::kDone);
  io.Text(m.stop.message, kMaxTextBytes);
}
template <typename Io>
void Fields(Io& io, FinishMessage& m) {
  io.Number(m.exit_code);
  io.Text(m.message, kMaxReportBytes);
}
template <typename Io>
void Fields(Io&, HeartbeatMessage&) {}

constexpr FrameType TypeOf(const JoinMessage&) { return FrameType::kJoin; }
constexpr FrameType TypeOf(const ReadyMessage&) { return FrameType::kReady; }
constexpr FrameType TypeOf(const StoppedMessage&) { return FrameType::kStopped; }
constexpr FrameType TypeOf(const FailedMessage&) { return FrameType::kFailed; }
constexpr FrameType TypeOf(const DoneMessage&) { return FrameType::kDone; }
constexpr FrameType TypeOf(const LeavingMessage&) { return FrameType::kLeaving; }
constexpr FrameType TypeOf(const FinishSeenMessage&) { return FrameType::kFinishSeen; }
constexpr FrameType TypeOf(const JoinedMessage&) { return FrameType::kJoined; }
constexpr FrameType TypeOf(const StartMessage&) { return FrameType::kStart; }
constexpr FrameType TypeOf(const RestartMessage&) { return FrameType::kRestart; }
constexpr FrameType TypeOf(const StopMessage&) { return FrameType::kStop; }
constexpr FrameType TypeOf(const FinishMessage&) { return FrameType::kFinish; }
constexpr FrameType TypeOf(const HeartbeatMessage&) { return FrameType::kHeartbeat; }

template <size_t I = 0>
Result<ControlMessage> ReadByType(FrameType type, std::string_view body) {
  if constexpr (I == std::variant_size_v<ControlMessage>) {
    return InvalidArgument("frame: not a message between launchers");
  } else {
    using T = std::variant_alternative_t<I, ControlMessage>;
    T message;
    if (type != TypeOf(message)) return ReadByType<I + 1>(type, body);
    Reader reader(body);
    Fields(reader, message);
    LOCKSTEP_RETURN_IF_ERROR(reader.Finish());
    return ControlMessage(std::move(message));
  }
}

}  // namespace

std::string EncodeControl(const ControlMessage& message) {
  return std::visit(
      [](auto copy) {
        Writer writer(TypeOf(copy));
        Fields(writer, copy);
        return writer.Finish();
      },
      message);
}

Result<ControlMessage> DecodeControl(std::string_view body) {
  return ReadByType(FrameParser(body).type(), body);
}

}  // namespace lockstep::rendezvous
