#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/contract/frame.h"
#include "common/contract/token.h"
#include "common/status.h"

// The mutual challenge at the start of every connection to the rendezvous port. Pure: frames in, frames out.
//
//   client → server  Hello      who I am (kind, job, generation, rank), nonce C
//   server → client  Challenge  store id, nonce S, HMAC-SHA256(token, "server" ‖ Hello ‖ store id ‖ S)
//   client → server  Answer     HMAC-SHA256(token, "client" ‖ Hello ‖ store id ‖ S)
//   server → client  Welcome    accepted, or why not
//
// Either side's proof covers both nonces, its own role, and who is speaking with which store. So a recorded
// proof is worth nothing on another connection, a proof sent back is worth nothing to its sender, and a proof
// for one rank or generation is none for another. It says who is at the other end; it does not encrypt what
// follows, nor protect it against someone who can alter packets on the way.
namespace lockstep::contract {

enum class PeerKind : uint8_t { kRank = 1, kLauncher = 2 };

// Who a client says it is, and proves to be entitled to.
struct PeerIdentity {
  PeerKind kind = PeerKind::kRank;
  std::string job = {};    // at most 63 bytes
  int64_t generation = 0;  // a rank's own; a launcher's highest seen, -1 for none
  int32_t index = 0;       // rank, or replica
};

inline constexpr size_t kStoreIdBytes = 16;
inline constexpr size_t kMaxJobBytes = 63;

// The answer to an authenticated client.
struct Welcome {
  Status status = {};       // not OK: refused, and why
  int64_t generation = -1;  // the one that is current
};
std::string EncodeWelcome(const Welcome& welcome);
Result<Welcome> DecodeWelcome(std::string_view body);

class ClientHandshake {
 public:
  // Draws its nonce. One object serves one connection.
  ClientHandshake(const Token& token, const PeerIdentity& identity);

  // The first frame to send.
  const std::string& hello() const { return hello_; }

  // The Answer to send. kPermissionDenied if the server did not prove that it knows the token;
  // kFailedPrecondition if `challenge_body` is no Challenge at all.
  Result<std::string> Answer(std::string_view challenge_body);

  // Of the server, as hexadecimal digits; after Answer() succeeded.
  const std::string& store_id() const { return store_id_; }

 private:
  Token token_;
  std::string hello_;
  std::string store_id_;
};

class ServerHandshake {
 public:
  // Draws its nonce. `store_id`: kStoreIdBytes raw bytes.
  ServerHandshake(const Token& token, std::string store_id);

  // The Challenge to send. kInvalidArgument if `hello_body` is no Hello.
  Result<std::string> Challenge(std::string_view hello_body);

  // kPermissionDenied if the client did not prove that it knows the token.
  Status Verify(std::string_view answer_body) const;

  // What the client said of itself: to be believed after Verify().
  const PeerIdentity& identity() const { return identity_; }

 private:
  Token token_;
  std::string store_id_;
  std::string nonce_;
  std::string hello_body_;
  PeerIdentity identity_;
};

std::string ToHex(std::string_view bytes);

}  // namespace lockstep::contract
