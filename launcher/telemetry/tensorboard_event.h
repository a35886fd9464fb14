#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// TensorBoard's event files: records of serialized tensorflow.Event messages
// (tensorflow/core/util/event.proto, framework/summary.proto), each behind its length and followed by a
// checksum (core/lib/io/record_writer.h).
namespace lockstep::telemetry {

struct Scalar {
  std::string_view tag;  // "loss": parts of a group share what is before a slash
  double value = 0;
};

// A node of a graph as the Graphs tab shows it.
struct GraphNode {
  std::string name;                 // what is before a slash is a group: "replica_1/dense"
  std::string op;                   // "Dense"
  std::vector<std::string> inputs;  // names
  std::string device;               // "/job:worker/replica:0/task:1/device:GPU:0"; empty: not known
  std::vector<int64_t> output;      // the shape of its output, -1 for what may differ; shown on its edges
};

// A record; one after another they are a file, whose name has "tfevents" in it. The first one of a file:
std::string VersionRecord(std::chrono::system_clock::time_point time);
std::string ScalarsRecord(std::chrono::system_clock::time_point time, int64_t step,
                          std::span<const Scalar> scalars);
// tensorflow.GraphDef (framework/graph.proto), and the record of one.
std::string GraphDef(std::span<const GraphNode> nodes);
std::string GraphRecord(std::chrono::system_clock::time_point time, std::string_view graph_def);

// CRC-32C (RFC 3720, section 12.1), bit-reflected, of polynomial 0x1edc6f41.
uint32_t Crc32c(std::string_view bytes);

}  // namespace lockstep::telemetry
