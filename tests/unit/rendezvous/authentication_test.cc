#include "common/contract/authentication.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::contract {
namespace {

const PeerIdentity kRank3{.kind = PeerKind::kRank, .job = "mnist", .generation = 7, .index = 3};

std::string Body(const std::string& frame) { return frame.substr(kFrameHeaderBytes); }

class AuthenticationTest : public ::testing::Test {
 protected:
  const Token token_ = Token::Random();
  const std::string store_id_ = RandomBytes(kStoreIdBytes);
};

TEST_F(AuthenticationTest, BothKnowEachOtherAfterOneRound) {
  ClientHandshake client(token_, kRank3);
  ServerHandshake server(token_, store_id_);
  const Result<std::string> challenge = server.Challenge(Body(client.hello()));
  ASSERT_TRUE(challenge.ok());
  const Result<std::string> answer = client.Answer(Body(*challenge));
  ASSERT_TRUE(answer.ok());
  EXPECT_TRUE(server.Verify(Body(*answer)).ok());
  EXPECT_EQ(server.identity().job, "mnist");
  EXPECT_EQ(server.identity().kind, PeerKind::kRank);
  EXPECT_EQ(server.identity().generation, 7);
  EXPECT_EQ(server.identity().index, 3);
  EXPECT_EQ(client.store_id(), ToHex(store_id_));
  for (const std::string* frame : {&client.hello(), &*challenge, &*answer}) {
    EXPECT_LE(frame->size(), kMaxHandshakeFrameBytes + kFrameHeaderBytes);
    EXPECT_EQ(frame->find(token_.bytes()), std::string::npos);
  }
}

TEST_F(AuthenticationTest, HelloOfTheLongestJobNameFits) {
  PeerIdentity identity = kRank3;
  identity.job = std::string(kMaxJobBytes, 'j');
  ClientHandshake client(token_, identity);
  EXPECT_LE(client.hello().size(), kMaxHandshakeFrameBytes + kFrameHeaderBytes);
  ServerHandshake server(token_, store_id_);
  ASSERT_TRUE(server.Challenge(Body(client.hello())).ok());
  EXPECT_EQ(server.identity().job, identity.job);
}

TEST_F(AuthenticationTest, ClientRefusesAServerWithAnotherToken) {
  ClientHandshake client(token_, kRank3);
  ServerHandshake server(Token::Random(), store_id_);
  const Result<std::string> challenge = server.Challenge(Body(client.hello()));
  ASSERT_TRUE(challenge.ok());
  EXPECT_EQ(client.Answer(Body(*challenge)).status().code(), StatusCode::kPermissionDenied);
}

TEST_F(AuthenticationTest, ServerRefusesAClientWithAnotherToken) {
  // A client that has the wrong token and does not mind that the server's proof is wrong to it.
  const Token wrong = Token::Random();
  ClientHandshake client(wrong, kRank3);
  ServerHandshake real(token_, store_id_);
  ASSERT_TRUE(real.Challenge(Body(client.hello())).ok());
  ServerHandshake accomplice(wrong, store_id_);
  const Result<std::string> challenge = accomplice.Challenge(Body(client.hello()));
  const Result<std::string> answer = client.Answer(Body(*challenge));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(real.Verify(Body(*answer)).code(), StatusCode::kPermissionDenied);
}

TEST_F(AuthenticationTest, RecordedAnswerIsWorthNothingOnAnotherConnection) {
  ClientHandshake client(token_, kRank3);
  ServerHandshake first(token_, store_id_);
  const Result<std::string> challenge = first.Challenge(Body(client.hello()));
  const Result<std::string> answer = client.Answer(Body(*challenge));
  ASSERT_TRUE(first.Verify(Body(*answer)).ok());

  ServerHandshake second(token_, store_id_);
  ASSERT_TRUE(second.Challenge(Body(client.hello())).ok());
  EXPECT_EQ(second.Verify(Body(*answer)).code(), StatusCode::kPermissionDenied);
}

TEST_F(AuthenticationTest, RecordedChallengeIsWorthNothingOnAnotherConnection) {
  ClientHandshake first(token_, kRank3);
  ServerHandshake server(token_, store_id_);
  const Result<std::string> challenge = server.Challenge(Body(first.hello()));
  ASSERT_TRUE(first.Answer(Body(*challenge)).ok());
  ClientHandshake second(token_, kRank3);
  EXPECT_EQ(second.Answer(Body(*challenge)).status().code(), StatusCode::kPermissionDenied);
}

TEST_F(AuthenticationTest, ServersOwnProofSentBackIsRefused) {
  ClientHandshake client(token_, kRank3);
  ServerHandshake server(token_, store_id_);
  const std::string challenge = Body(*server.Challenge(Body(client.hello())));
  const std::string proof = challenge.substr(challenge.size() - 32);
  const std::string reflected = FrameWriter(FrameType::kAnswer).Raw(proof).Finish();
  EXPECT_EQ(server.Verify(Body(reflected)).code(), StatusCode::kPermissionDenied);
}

TEST_F(AuthenticationTest, ProofIsForOneIdentityAndOneStore) {
  // Someone in the middle changes who the client says it is, or which store answers.
  ClientHandshake client(token_, kRank3);
  for (const size_t offset :
       {9u, 10u, 17u, 21u, 26u}) {  // kind (made invalid), generation, its last byte, rank, job
    std::string hello = Body(client.hello());
    hello[1 + offset] = static_cast<char>(hello[1 + offset] ^ 1);
    ServerHandshake server(token_, store_id_);
    const Result<std::string> challenge = server.Challenge(hello);
    if (!challenge.ok()) continue;
    EXPECT_EQ(client.Answer(Body(*challenge)).status().code(), StatusCode::kPermissionDenied) << offset;
  }
  ServerHandshake server(token_, store_id_);
  std::string challenge = Body(*server.Challenge(Body(client.hello())));
  challenge[1] = static_cast<char>(challenge[1] ^ 1);  // the store's id
  EXPECT_EQ(client.Answer(challenge).status().code(), StatusCode::kPermissionDenied);
}

TEST_F(AuthenticationTest, RefusesEveryPrefixOfEveryFrame) {
  ClientHandshake client(token_, kRank3);
  ServerHandshake server(token_, store_id_);
  const std::string hello = Body(client.hello());
  for (size_t length = 0; length < hello.size(); ++length) {
    EXPECT_FALSE(ServerHandshake(token_, store_id_).Challenge(hello.substr(0, length)).ok());
  }
  const std::string challenge = Body(*server.Challenge(hello));
  for (size_t length = 0; length < challenge.size(); ++length) {
    EXPECT_EQ(client.Answer(challenge.substr(0, length)).status().code(), StatusCode::kFailedPrecondition);
  }
  const std::string answer = Body(*client.Answer(challenge));
  for (size_t length = 0; length < answer.size(); ++length)
    EXPECT_FALSE(server.Verify(answer.substr(0, length)).ok());
  EXPECT_TRUE(server.Verify(answer).ok());
  EXPECT_FALSE(server.Verify(answer + "x").ok());
}

TEST_F(AuthenticationTest, AnswerBeforeHelloIsRefused) {
  const ServerHandshake server(token_, store_id_);
  EXPECT_FALSE(server.Verify(Body(FrameWriter(FrameType::kAnswer).Raw(std::string(32, '\0')).Finish())).ok());
}

TEST(WelcomeTest, CarriesTheReasonOfARefusal) {
  const Result<Welcome> welcome = DecodeWelcome(
      Body(EncodeWelcome({.status = PermissionDenied("generation 2 is over"), .generation = 5})));
  ASSERT_TRUE(welcome.ok());
  EXPECT_EQ(welcome->status.code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(welcome->status.message(), "generation 2 is over");
  EXPECT_EQ(welcome->generation, 5);
}

}  // namespace
}  // namespace lockstep::contract
