#include "common/contract/authentication.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <cstdlib>
#include <utility>

namespace lockstep::contract {

namespace {

constexpr std::string_view kMagic = "lockstep";
constexpr uint8_t kVersion = 1;
constexpr size_t kNonceBytes = 32;
constexpr size_t kProofBytes = 32;
constexpr size_t kMaxReasonBytes = 2048;

// RFC 2104 with SHA-256 (FIPS 180-4). Every part but the last has a fixed length or carries its own, so no
// two transcripts are the same bytes.
std::string Proof(const Token& token, std::string_view role, std::string_view hello_body,
                  std::string_view store_id, std::string_view server_nonce) {
  const std::string transcript = FrameWriter(FrameType::kChallenge)
                                     .String("lockstep rendezvous 1")
                                     .String(role)
                                     .String(hello_body)
                                     .String(store_id)
                                     .String(server_nonce)
                                     .Finish();
  std::string proof(kProofBytes, '\0');
  unsigned length = 0;
  const auto* key = token.bytes().data();
  // It fails only without memory or without a provider of SHA-256: nothing could be trusted then.
  if (::HMAC(::EVP_sha256(), key, Token::kBytes, reinterpret_cast<const unsigned char*>(transcript.data()),
             transcript.size(), reinterpret_cast<unsigned char*>(proof.data()), &length) == nullptr ||
      length != kProofBytes) {
    std::abort();
  }
  return proof;
}

std::string_view BodyOf(std::string_view frame) { return frame.substr(kFrameHeaderBytes); }

}  // namespace

std::string EncodeWelcome(const Welcome& welcome) {
  return FrameWriter(FrameType::kWelcome)
      .U8(static_cast<uint8_t>(welcome.status.code()))
      .String(std::string_view(welcome.status.message()).substr(0, kMaxReasonBytes))
      .I64(welcome.generation)
      .Finish();
}

Result<Welcome> DecodeWelcome(std::string_view body) {
  FrameParser parser(body);
  const uint8_t code = parser.U8();
  const std::string message(parser.String(kMaxReasonBytes));
  const int64_t generation = parser.I64();
  LOCKSTEP_RETURN_IF_ERROR(parser.Finish());
  if (parser.type() != FrameType::kWelcome || code > static_cast<uint8_t>(StatusCode::kInternal)) {
    return InvalidArgument("frame: not a Welcome");
  }
  return Welcome{.status = {static_cast<StatusCode>(code), message}, .generation = generation};
}

ClientHandshake::ClientHandshake(const Token& token, const PeerIdentity& identity)
    : token_(token),
      hello_(FrameWriter(FrameType::kHello)
                 .Raw(kMagic)
                 .U8(kVersion)
                 .U8(static_cast<uint8_t>(identity.kind))
                 .I64(identity.generation)
                 .U32(static_cast<uint32_t>(identity.index))
                 .String(std::string_view(identity.job).substr(0, kMaxJobBytes))
                 .Raw(RandomBytes(kNonceBytes))
                 .Finish()) {}

Result<std::string> ClientHandshake::Answer(std::string_view challenge_body) {
  FrameParser parser(challenge_body);
  const std::string_view store_id = parser.Raw(kStoreIdBytes);
  const std::string_view server_nonce = parser.Raw(kNonceBytes);
  const std::string_view proof = parser.Raw(kProofBytes);
  if (parser.type() != FrameType::kChallenge || !parser.Finish().ok()) {
    return FailedPrecondition("what listens there is no Lockstep rendezvous");
  }
  const std::string_view hello_body = BodyOf(hello_);
  if (!ConstantTimeEqual(proof, Proof(token_, "server", hello_body, store_id, server_nonce))) {
    return PermissionDenied("the rendezvous there has another token than this process");
  }
  store_id_ = ToHex(store_id);
  return FrameWriter(FrameType::kAnswer)
      .Raw(Proof(token_, "client", hello_body, store_id, server_nonce))
      .Finish();
}

ServerHandshake::ServerHandshake(const Token& token, std::string store_id)
    : token_(token), store_id_(std::move(store_id)), nonce_(RandomBytes(kNonceBytes)) {}

Result<std::string> ServerHandshake::Challenge(std::string_view hello_body) {
  FrameParser parser(hello_body);
  const std::string_view magic = parser.Raw(kMagic.size());
  const uint8_t version = parser.U8();
  const uint8_t kind = parser.U8();
  identity_.generation = parser.I64();
  identity_.index = static_cast<int32_t>(parser.U32());
  identity_.job = parser.String(kMaxJobBytes);
  parser.Raw(kNonceBytes);
  LOCKSTEP_RETURN_IF_ERROR(parser.Finish());
  if (parser.type() != FrameType::kHello || magic != kMagic || version != kVersion) {
    return InvalidArgument("frame: not a Hello of this version");
  }
  if (kind != static_cast<uint8_t>(PeerKind::kRank) && kind != static_cast<uint8_t>(PeerKind::kLauncher)) {
    return InvalidArgument("Hello: neither a rank nor a launcher");
  }
  identity_.kind = static_cast<PeerKind>(kind);
  hello_body_ = hello_body;
  return FrameWriter(FrameType::kChallenge)
      .Raw(store_id_)
      .Raw(nonce_)
      .Raw(Proof(token_, "server", hello_body_, store_id_, nonce_))
      .Finish();
}

Status ServerHandshake::Verify(std::string_view answer_body) const {
  FrameParser parser(answer_body);
  const std::string_view proof = parser.Raw(kProofBytes);
  LOCKSTEP_RETURN_IF_ERROR(parser.Finish());
  if (parser.type() != FrameType::kAnswer || hello_body_.empty() ||
      !ConstantTimeEqual(proof, Proof(token_, "client", hello_body_, store_id_, nonce_))) {
    return PermissionDenied("the client does not know this job's token");
  }
  return {};
}

std::string ToHex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    text += "0123456789abcdef"[static_cast<uint8_t>(c) >> 4];
    text += "0123456789abcdef"[static_cast<uint8_t>(c) & 15];
  }
  return text;
}

}  // namespace lockstep::contract
