#include "launcher/telemetry/tensorboard_event.h"

#include <array>
#include <bit>

namespace lockstep::telemetry {

namespace {

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0);
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = MakeCrcTable();

template <typename Unsigned>
void AppendLittleEndian(std::string& to, Unsigned value) {
  for (size_t i = 0; i < sizeof value; ++i) to += static_cast<char>(value >> (8 * i));
}

// Protocol buffers' wire format (protobuf.dev/programming-guides/encoding).
enum class Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void AppendVarint(std::string& to, uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>(value | 0x80);
  to += static_cast<char>(value);
}

void AppendTag(std::string& to, int field, Wire wire) {
  AppendVarint(to, static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire));
}

void AppendBytes(std::string& to, int field, std::string_view bytes) {
  AppendTag(to, field, Wire::kBytes);
  AppendVarint(to, bytes.size());
  to += bytes;
}

// tensorflow.Event with its time.
std::string BeginEvent(std::chrono::system_clock::time_point time) {
  std::string event;
  AppendTag(event, 1, Wire::kFixed64);
  AppendLittleEndian(event,
                     std::bit_cast<uint64_t>(std::chrono::duration<double>(time.time_since_epoch()).count()));
  return event;
}

void AppendNumber(std::string& to, int field, int64_t value) {
  AppendTag(to, field, Wire::kVarint);
  AppendVarint(to, static_cast<uint64_t>(value));
}

// tensorflow.TensorShapeProto.
std::string ShapeOf(std::span<const int64_t> dims) {
  std::string shape;
  for (const int64_t dim : dims) {
    std::string size;
    AppendNumber(size, 1, dim);
    AppendBytes(shape, 2, size);
  }
  return shape;
}

// The attribute of which TensorBoard takes the sizes of edges: an AttrValue with a list of shapes, one each
// output, in a map.
std::string OutputShapes(std::span<const int64_t> dims) {
  std::string list, value, entry;
  AppendBytes(list, 7, ShapeOf(dims));
  AppendBytes(value, 1, list);
  AppendBytes(entry, 1, "_output_shapes");
  AppendBytes(entry, 2, value);
  return entry;
}

// So that the checksum of data with checksums in it is a good one too.
uint32_t Masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8U; }

std::string Record(std::string_view event) {
  std::string record;
  AppendLittleEndian(record, static_cast<uint64_t>(event.size()));
  AppendLittleEndian(record, Masked(Crc32c(record)));
  record += event;
  AppendLittleEndian(record, Masked(Crc32c(event)));
  return record;
}

}  // namespace

uint32_t Crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffffU;
  for (const char byte : bytes) crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  return ~crc;
}

std::string VersionRecord(std::chrono::system_clock::time_point time) {
  std::string event = BeginEvent(time);
  AppendBytes(event, 3, "brain.Event:2");
  return Record(event);
}

std::string ScalarsRecord(std::chrono::system_clock::time_point time, int64_t step,
                          std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    AppendBytes(value, 1, scalar.tag);
    AppendTag(value, 2, Wire::kFixed32);
    AppendLittleEndian(value, std::bit_cast<uint32_t>(static_cast<float>(scalar.value)));
    AppendBytes(summary, 1, value);
  }
  std::string event = BeginEvent(time);
  AppendTag(event, 2, Wire::kVarint);
  AppendVarint(event, static_cast<uint64_t>(step));
  AppendBytes(event, 5, summary);
  return Record(event);
}

std::string GraphDef(std::span<const GraphNode> nodes) {
  constexpr int64_t kProducer = 22;  // a version that all readers know
  std::string graph;
  for (const GraphNode& node : nodes) {
    std::string definition;
    AppendBytes(definition, 1, node.name);
    AppendBytes(definition, 2, node.op);
    for (const std::string& input : node.inputs) AppendBytes(definition, 3, input);
    if (!node.device.empty()) AppendBytes(definition, 4, node.device);
    if (!node.output.empty()) AppendBytes(definition, 5, OutputShapes(node.output));
    AppendBytes(graph, 1, definition);
  }
  std::string versions;
  AppendNumber(versions, 1, kProducer);
  AppendBytes(graph, 4, versions);
  return graph;
}

std::string GraphRecord(std::chrono::system_clock::time_point time, std::string_view graph_def) {
  std::string event = BeginEvent(time);
  AppendBytes(event, 4, graph_def);
  return Record(event);
}

}  // namespace lockstep::telemetry
