#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// tensor/ has the plain matter that the trainer computes on: element types, shapes, allocators and the
// buffers they hand out. It knows no arithmetic and no device: a backend brings the allocator of its memory,
// and everything above passes pointers into such memory around. Owners (Buffer) are move-only; views are
// spans or bare pointers.
namespace lockstep::trainer {

enum class DataType { kFloat32, kBFloat16, kInt32, kUInt8 };

// Bytes of one element.
constexpr size_t SizeOf(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return 4;
    case DataType::kBFloat16:
      return 2;
    case DataType::kInt32:
      return 4;
    case DataType::kUInt8:
      return 1;
  }
  return 0;
}

// As a manifest writes it: "Float32", "BFloat16", …
constexpr std::string_view DataTypeName(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return "Float32";
    case DataType::kBFloat16:
      return "BFloat16";
    case DataType::kInt32:
      return "Int32";
    case DataType::kUInt8:
      return "UInt8";
  }
  return "?";
}

}  // namespace lockstep::trainer
