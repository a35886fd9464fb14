#include "common/contract/frame.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/contract/store_protocol.h"

namespace lockstep::contract {
namespace {

TEST(FrameTest, FieldsAreReadBackAsWritten) {
  const std::string frame = FrameWriter(FrameType::kSet)
                                .U8(200)
                                .U32(0xdeadbeef)
                                .I64(-5)
                                .String(std::string("a\0b", 3))
                                .Raw("xy")
                                .Finish();
  FrameParser parser(std::string_view(frame).substr(kFrameHeaderBytes));
  EXPECT_EQ(parser.type(), FrameType::kSet);
  EXPECT_EQ(parser.U8(), 200);
  EXPECT_EQ(parser.U32(), 0xdeadbeefu);
  EXPECT_EQ(parser.I64(), -5);
  EXPECT_EQ(parser.String(3), std::string_view("a\0b", 3));
  EXPECT_EQ(parser.Raw(2), "xy");
  EXPECT_TRUE(parser.Finish().ok());
}

TEST(FrameTest, TooShortTooLongAndOversizedStringsAreErrors) {
  const std::string frame = FrameWriter(FrameType::kSet).String("abc").Finish();
  const std::string_view body = std::string_view(frame).substr(kFrameHeaderBytes);
  FrameParser too_long(body);
  EXPECT_FALSE(too_long.Finish().ok());
  FrameParser too_short(body.substr(0, 6));
  EXPECT_EQ(too_short.String(10), "");
  EXPECT_EQ(too_short.I64(), 0);
  EXPECT_FALSE(too_short.Finish().ok());
  FrameParser oversized(body);
  EXPECT_EQ(oversized.String(2), "");
  EXPECT_FALSE(oversized.Finish().ok());
  EXPECT_FALSE(FrameParser("").Finish().ok());
}

TEST(FrameBufferTest, CutsAStreamAtWhateverPiecesItArrives) {
  std::string stream;
  const std::vector<std::string> bodies{"\x10", std::string(200, 'b'), "\x12xyz"};
  for (const std::string& body : bodies) {
    stream += FrameWriter(static_cast<FrameType>(body[0])).Raw(body.substr(1)).Finish();
  }
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    FrameBuffer buffer(200);
    std::vector<std::string> got;
    for (size_t at = 0; at < stream.size(); at += piece) {
      buffer.Append(std::string_view(stream).substr(at, piece));
      for (auto next = buffer.Next(); next.ok() && next->has_value(); next = buffer.Next())
        got.emplace_back(**next);
    }
    EXPECT_EQ(got, bodies) << piece;
  }
}

TEST(FrameBufferTest, RefusesFromTheHeaderOnWhatIsTooLong) {
  FrameBuffer buffer(256);
  buffer.Append("GET / HTTP/1.1\r\n");
  EXPECT_EQ(buffer.Next().status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(buffer.Next().ok());
  FrameBuffer empty_frame(256);
  empty_frame.Append(std::string(4, '\0'));
  EXPECT_FALSE(empty_frame.Next().ok());
  FrameBuffer exact(256);
  exact.Append(FrameWriter(FrameType::kSet).Raw(std::string(255, 'x')).Finish());
  ASSERT_TRUE(exact.Next().ok());
}

TEST(StoreProtocolTest, RequestsAndRepliesAreReadBackAsWritten) {
  const StoreRequest request{.verb = FrameType::kWait,
                             .id = 9,
                             .timeout_ms = 1234,
                             .keys = {"a", std::string(kMaxKeyBytes, 'k')},
                             .value = "",
                             .amount = -3};
  const Result<StoreRequest> read = DecodeRequest(EncodeRequest(request).substr(kFrameHeaderBytes));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->verb, FrameType::kWait);
  EXPECT_EQ(read->id, 9u);
  EXPECT_EQ(read->timeout_ms, 1234u);
  EXPECT_EQ(read->keys, request.keys);
  EXPECT_EQ(read->amount, -3);

  const StoreReply reply{
      .id = 9, .status = DeadlineExceeded("waited"), .value = std::string(kMaxValueBytes, 'v')};
  const Result<StoreReply> answer = DecodeReply(EncodeReply(reply).substr(kFrameHeaderBytes));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->status.ToString(), reply.status.ToString());
  EXPECT_EQ(answer->value, reply.value);
  EXPECT_LE(EncodeReply(reply).size(), kMaxStoreFrameBytes + kFrameHeaderBytes);
}

TEST(StoreProtocolTest, RefusesWhatIsOverTheLimits) {
  StoreRequest request{.verb = FrameType::kSet, .id = 1, .keys = {std::string(kMaxKeyBytes + 1, 'k')}};
  EXPECT_EQ(CheckRequest(request).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(DecodeRequest(EncodeRequest(request).substr(kFrameHeaderBytes)).ok());
  request = {.verb = FrameType::kSet, .id = 1, .keys = {"k"}, .value = std::string(kMaxValueBytes + 1, 'v')};
  EXPECT_EQ(CheckRequest(request).code(), StatusCode::kInvalidArgument);
  request = {.verb = FrameType::kSet, .id = 1, .keys = {""}};
  EXPECT_EQ(CheckRequest(request).code(), StatusCode::kInvalidArgument);
  request = {
      .verb = FrameType::kWait, .id = 1, .keys = std::vector<std::string>(2000, std::string(1000, 'k'))};
  EXPECT_EQ(CheckRequest(request).code(), StatusCode::kInvalidArgument);
  request = {.verb = FrameType::kGet, .id = 1, .keys = {"a", "b"}};
  EXPECT_FALSE(DecodeRequest(EncodeRequest(request).substr(kFrameHeaderBytes)).ok());
}

TEST(AddToCounterTest, CountsAndRefusesWhatIsNoNumber) {
  EXPECT_EQ(*AddToCounter("", 3), 3);
  EXPECT_EQ(*AddToCounter("40", 2), 42);
  EXPECT_EQ(*AddToCounter("-1", 1), 0);
  EXPECT_FALSE(AddToCounter("x", 1).ok());
  EXPECT_FALSE(AddToCounter("1 ", 1).ok());
  EXPECT_FALSE(AddToCounter("9223372036854775807", 1).ok());
}

}  // namespace
}  // namespace lockstep::contract
