#include "launcher/telemetry/tensorboard_event.h"

#include <gtest/gtest.h>

#include <cstring>

// (That TensorBoard itself reads them: tests/integration/tensorboard_test.py.)
namespace lockstep::telemetry {
namespace {

constexpr std::chrono::system_clock::time_point kTime{std::chrono::milliseconds(1'500)};

template <typename Value>
Value At(const std::string& bytes, size_t offset) {
  Value value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

TEST(TensorboardEventTest, TheChecksumIsThatOfTheStandard) {
  // RFC 3720, appendix B.4.
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283U);
}

TEST(TensorboardEventTest, ARecordIsTheLengthTheEventAndTheirChecksums) {
  const std::string record = VersionRecord(kTime);
  ASSERT_EQ(record.size(), 12 + 24 + 4u);
  EXPECT_EQ(At<uint64_t>(record, 0), 24u);
  const auto masked = [](uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8U; };
  EXPECT_EQ(At<uint32_t>(record, 8), masked(Crc32c(record.substr(0, 8))));
  EXPECT_EQ(At<uint32_t>(record, 36), masked(Crc32c(record.substr(12, 24))));
  EXPECT_EQ(record[12], 0x09);  // wall_time
  EXPECT_EQ(At<double>(record, 13), 1.5);
  EXPECT_EQ(record.substr(21, 15),
            "\x1a\x0d"
            "brain.Event:2");
}

TEST(TensorboardEventTest, ScalarsHaveTheirStepAndTags) {
  const Scalar scalars[] = {{"loss", 0.25}, {"a", 2}};
  const std::string record = ScalarsRecord(kTime, 300, scalars);
  const std::string event = record.substr(12, record.size() - 16);
  EXPECT_EQ(event.substr(9, 3), "\x10\xac\x02");       // step: 300 as a varint
  EXPECT_EQ(event.substr(12, 4), "\x2a\x17\x0a\x0b");  // summary, its first value
  EXPECT_EQ(event.substr(16, 7), "\x0a\x04loss\x15");  // tag, simple_value
  EXPECT_EQ(At<float>(event, 23), 0.25F);
  EXPECT_EQ(event.substr(27, 6),
            "\x0a\x08\x0a\x01"
            "a\x15");
  EXPECT_EQ(At<float>(event, 33), 2.0F);
  EXPECT_EQ(event.size(), 37u);
}

TEST(TensorboardEventTest, ANodeHasItsDeviceAndTheShapeOfItsOutput) {
  const GraphNode nodes[] = {
      {.name = "b", .op = "Dense", .inputs = {"a"}, .device = "/device:GPU:1", .output = {-1, 300}}};
  using namespace std::string_literals;  // NOLINT(google-build-using-namespace)
  // TensorShapeProto: a dimension of -1, which is a varint of ten bytes, and one of 300.
  const std::string any = "\x08" + std::string(9, '\xff') + "\x01";
  const std::string shape = "\x12\x0b" + any + "\x12\x03\x08\xac\x02";
  const std::string list = "\x3a\x12" + shape;
  const std::string value = "\x0a\x14" + list;
  const std::string attribute = "\x0a\x0e_output_shapes\x12\x16" + value;
  const std::string node =
      "\x0a\x01"s + "b\x12\x05" + "Dense\x1a\x01" + "a\x22\x0d/device:GPU:1\x2a\x28" + attribute;
  ASSERT_EQ(attribute.size(), 0x28u);
  ASSERT_EQ(node.size(), 0x46u);
  const std::string graph = GraphDef(nodes);
  EXPECT_EQ(graph, "\x0a\x46" + node + "\x22\x02\x08\x16");
  const std::string record = GraphRecord(kTime, graph);
  EXPECT_EQ(record.substr(12 + 9, 2), std::string({'\x22', static_cast<char>(graph.size())}));
  EXPECT_EQ(record.substr(12 + 11, graph.size()), graph);
}

}  // namespace
}  // namespace lockstep::telemetry
