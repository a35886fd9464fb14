#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "common/contract/authentication.h"
#include "common/contract/frame.h"
#include "common/contract/store_protocol.h"
#include "launcher/rendezvous/control_message.h"
#include "tests/unit/rendezvous/rendezvous_testing.h"

// Everything that reads from the network, over random and over slightly damaged input. The sanitizers look
// on.
namespace lockstep::rendezvous {
namespace {

using contract::kFrameHeaderBytes;

std::vector<std::string> GoodFrames() {
  const contract::Token token = contract::Token::Random();
  contract::ClientHandshake client(token, {.job = "mnist", .generation = 1, .index = 2});
  contract::ServerHandshake server(token, contract::RandomBytes(contract::kStoreIdBytes));
  const std::string challenge = *server.Challenge(client.hello().substr(kFrameHeaderBytes));
  return {client.hello(),
          challenge,
          *client.Answer(challenge.substr(kFrameHeaderBytes)),
          contract::EncodeWelcome({.status = PermissionDenied("no"), .generation = 4}),
          contract::EncodeRequest({.verb = contract::FrameType::kSet, .id = 1, .keys = {"k"}, .value = "v"}),
          contract::EncodeRequest(
              {.verb = contract::FrameType::kWait, .id = 2, .timeout_ms = 9, .keys = {"a", "b", "c"}}),
          contract::EncodeReply({.id = 3, .status = Aborted("over"), .value = "v"}),
          EncodeControl(JoinMessage{.instance = "i", .manifest_digest = "d", .replicas = 2, .host = "h"}),
          EncodeControl(FailedMessage{
              .generation = 1,
              .report = {.rank = 3, .exit_code = 137, .message = "killed", .last_lines = {"a", "b"}}}),
          EncodeControl(JoinedMessage{Unavailable("here already")}),
          EncodeControl(StartMessage{.generation = 1,
                                     .replicas = {{.replica = 0, .host = "a", .processes = 2},
                                                  {.replica = 1, .host = "b", .processes = 3}},
                                     .master_address = "a",
                                     .master_port = 5}),
          EncodeControl(StopMessage{{.generation = 1, .cause = StopCause::kTerminate, .message = "SIGTERM"}}),
          EncodeControl(FinishMessage{.exit_code = 3, .message = "bad data"}),
          EncodeControl(HeartbeatMessage{})};
}

// All decoders; what they accept, they must be able to say again.
void DecodeAll(const std::string& body) {
  const contract::Token token = contract::Token::Random();
  contract::ServerHandshake server(token, std::string(contract::kStoreIdBytes, 's'));
  (void)server.Challenge(body);
  EXPECT_FALSE(server.Verify(body).ok());
  contract::ClientHandshake client(token, {.job = "mnist"});
  EXPECT_FALSE(client.Answer(body).ok());
  (void)contract::DecodeWelcome(body);
  if (const auto request = contract::DecodeRequest(body); request.ok()) {
    EXPECT_EQ(contract::EncodeRequest(*request).substr(kFrameHeaderBytes), body);
  }
  if (const auto reply = contract::DecodeReply(body); reply.ok()) {
    EXPECT_EQ(contract::EncodeReply(*reply).substr(kFrameHeaderBytes), body);
  }
  if (const auto message = DecodeControl(body); message.ok()) {
    EXPECT_TRUE(DecodeControl(EncodeControl(*message).substr(kFrameHeaderBytes)).ok());
  }
}

TEST(ProtocolFuzzTest, EveryGoodFrameIsUnderstoodByExactlyItsDecoder) {
  for (const std::string& frame : GoodFrames()) {
    const std::string body = frame.substr(kFrameHeaderBytes);
    contract::ServerHandshake server(contract::Token::Random(), std::string(contract::kStoreIdBytes, 's'));
    const bool understood[] = {server.Challenge(body).ok(), contract::DecodeWelcome(body).ok(),
                               contract::DecodeRequest(body).ok(), contract::DecodeReply(body).ok(),
                               DecodeControl(body).ok()};
    const auto type = static_cast<contract::FrameType>(body[0]);
    const bool proof = type == contract::FrameType::kChallenge || type == contract::FrameType::kAnswer;
    EXPECT_EQ(std::count(std::begin(understood), std::end(understood), true), proof ? 0 : 1) << int(body[0]);
  }
}

TEST(ProtocolFuzzTest, RandomBytesAreNeverMoreThanAnError) {
  std::mt19937 random(1);
  for (int i = 0; i < 5000; ++i) {
    std::string body(random() % 200, '\0');
    for (char& c : body) c = static_cast<char>(random());
    if (!body.empty() && i % 2 == 0) body[0] = static_cast<char>(random() % 44);  // a type that exists
    DecodeAll(body);
  }
}

TEST(ProtocolFuzzTest, DamagedFramesAreNeverMoreThanAnError) {
  std::mt19937 random(2);
  const std::vector<std::string> frames = GoodFrames();
  for (int i = 0; i < 5000; ++i) {
    std::string body = frames[random() % frames.size()].substr(kFrameHeaderBytes);
    for (int change = 0; change < 3 && !body.empty(); ++change) {
      const size_t at = random() % body.size();
      switch (random() % 4) {
        case 0:
          body[at] = static_cast<char>(random());
          break;
        case 1:
          body.resize(at);
          break;
        case 2:
          body.insert(at, std::string(random() % 8, static_cast<char>(random())));
          break;
        default:
          body.replace(at, 4, "\xff\xff\xff\xff");  // where a length may be
      }
    }
    // (That a damaged proof is refused is a matter of authentication_test.)
    const bool proof = !body.empty() && (body[0] == 2 || body[0] == 3);
    if (!proof) DecodeAll(body);
  }
}

TEST(ProtocolFuzzTest, StreamsOfAnyBytesCutAnywhereAreBounded) {
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    contract::FrameBuffer buffer(256);
    for (int piece = 0; piece < 50; ++piece) {
      std::string bytes(random() % 64, '\0');
      for (char& c : bytes) c = static_cast<char>(random() % 4 == 0 ? random() : 0);
      buffer.Append(bytes);
      auto frame = buffer.Next();
      while (frame.ok() && frame->has_value()) {
        EXPECT_GE((*frame)->size(), 1u);
        EXPECT_LE((*frame)->size(), 256u);
        frame = buffer.Next();
      }
      if (!frame.ok()) break;
    }
  }
}

TEST(ProtocolFuzzTest, ServerLivesThroughRandomConversations) {
  testing::ServerThread server;
  server.Begin(0, 2);
  const auto rank = server.Client(0);
  std::mt19937 random(4);
  const std::vector<std::string> frames = GoodFrames();
  for (int i = 0; i < 200; ++i) {
    testing::RawConnection peer(server.port());
    ASSERT_TRUE(peer.connected());
    if (i % 2 == 0) {
      // Knows the token, and then talks nonsense.
      contract::ClientHandshake handshake(server.token, {.job = "mnist", .generation = 0, .index = 1});
      peer.Send(handshake.hello());
      const Result<std::string> answer = handshake.Answer(peer.ReceiveFrame());
      ASSERT_TRUE(answer.ok());
      peer.Send(*answer);
      ASSERT_FALSE(peer.ReceiveFrame().empty());
    }
    for (int n = 0; n < 5; ++n) {
      std::string frame = frames[random() % frames.size()];
      if (random() % 2 == 0) frame[random() % frame.size()] = static_cast<char>(random());
      if (!peer.Send(frame)) break;
    }
  }
  const Status alive = rank->Set("k", "v", testing::In(testing::kPatience));
  EXPECT_TRUE(alive.ok()) << alive.ToString();
  EXPECT_NE(server.Client(1), nullptr);
}

}  // namespace
}  // namespace lockstep::rendezvous
