#pragma once

#include <chrono>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "common/contract/token.h"
#include "common/unique_fd.h"
#include "trainer/error.h"
#include "trainer/parameter_server/partition.h"
#include "trainer/parameter_server/protocol.h"

namespace lockstep::trainer::parameter_server {

// The peer is gone, does not answer in time, or says what makes no sense: this connection is of no use any
// more. Never ends a process by itself; who catches it connects anew, or lets the peer go.
struct ConnectionLost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Who takes part in a job's connections, and what proves it.
struct Membership {
  contract::Token token;
  std::string job;
  int64_t generation = 0;
  int rank = 0;
};

// One TCP connection, with a deadline for every call. One thread at a time; Interrupt from any.
class Connection {
 public:
  // Connected and non-blocking.
  explicit Connection(UniqueFd socket);

  // To a server that proves that it is `id` (hexadecimal digits) and knows the token.
  static Connection Connect(const std::string& address, const std::string& id, const Membership& self,
                            Deadline deadline);
  // The other side of it; false: a stranger, or of another job or generation.
  bool Admit(const std::string& raw_id, const Membership& self, Deadline deadline);

  void Send(std::string_view frame, Deadline deadline) { SendWith(frame, nullptr, {}, deadline); }
  // A frame, and the pieces of `floats` behind it.
  void SendWith(std::string_view frame, const float* floats, std::span<const Piece> pieces,
                Deadline deadline);
  // Floats alone.
  void SendFloats(std::span<const float> floats, Deadline deadline);

  // The body of the next frame.
  std::string Receive(Deadline deadline, size_t max_bytes = kMaxFrameBytes);
  void ReceiveFloats(float* floats, std::span<const Piece> pieces, Deadline deadline);
  void ReceiveFloats(std::span<float> floats, Deadline deadline);

  // Asks and gets the answer.
  template <typename Answer, typename Question>
  Answer Ask(const Question& question, Deadline deadline) {
    Send(Encode(question), deadline);
    return ReceiveAs<Answer>(deadline);
  }
  template <typename Message>
  Message ReceiveAs(Deadline deadline) {
    return As<Message>(Receive(deadline));
  }
  template <typename Message>
  static Message As(std::string_view body) {
    Result<Message> message = Decode<Message>(body);
    if (!message.ok()) throw ConnectionLost(message.status().message());
    return *std::move(message);
  }

  // Makes what is under way, and all that comes, throw.
  void Interrupt() noexcept;
  // Whether the other end has closed it, as far as can be told without waiting.
  bool closed_by_peer() const;

 private:
  void Read(char* bytes, size_t count, Deadline deadline);

  UniqueFd socket_;
};

// A listening socket on a free port of this machine's address towards `reach`, or of `interface` if that is
// given. Throws RendezvousFailed.
struct Listener {
  UniqueFd socket;
  std::string address;  // HOST:PORT
};
Listener Listen(const std::string& interface, const std::string& reach);

}  // namespace lockstep::trainer::parameter_server
