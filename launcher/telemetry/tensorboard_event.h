#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

// TensorBoard's event files: records of serialized tensorflow.Event messages
// (tensorflow/core/util/event.proto, framework/summary.proto), each behind its length and followed by a
// checksum (core/lib/io/record_writer.h).
namespace lockstep::telemetry {

struct Scalar {
  std::string_view tag;  // "loss": parts of a group share what is before a slash
  double value = 0;
};

// A record; one after another they are a file, whose name has "tfevents" in it. The first one of a file:
std::string VersionRecord(std::chrono::system_clock::time_point time);
std::string ScalarsRecord(std::chrono::system_clock::time_point time, int64_t step,
                          std::span<const Scalar> scalars);

// CRC-32C (RFC 3720, section 12.1), bit-reflected, of polynomial 0x1edc6f41.
uint32_t Crc32c(std::string_view bytes);

}  // namespace lockstep::telemetry
