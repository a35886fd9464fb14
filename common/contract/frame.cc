#include "common/contract/frame.h"

namespace lockstep::contract {

namespace {

void AppendBigEndian(std::string& bytes, uint64_t value, int count) {
  for (int shift = 8 * (count - 1); shift >= 0; shift -= 8)
    bytes.push_back(static_cast<char>(value >> shift));
}

uint64_t ReadBigEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char c : bytes) value = value << 8 | static_cast<uint8_t>(c);
  return value;
}

}  // namespace

FrameWriter::FrameWriter(FrameType type) : bytes_(kFrameHeaderBytes, '\0') { U8(static_cast<uint8_t>(type)); }

FrameWriter& FrameWriter::U8(uint8_t value) {
  AppendBigEndian(bytes_, value, 1);
  return *this;
}

FrameWriter& FrameWriter::U32(uint32_t value) {
  AppendBigEndian(bytes_, value, 4);
  return *this;
}

FrameWriter& FrameWriter::I64(int64_t value) {
  AppendBigEndian(bytes_, static_cast<uint64_t>(value), 8);
  return *this;
}

FrameWriter& FrameWriter::Raw(std::string_view bytes) {
  bytes_ += bytes;
  return *this;
}

FrameWriter& FrameWriter::String(std::string_view bytes) {
  U32(static_cast<uint32_t>(bytes.size()));
  return Raw(bytes);
}

std::string FrameWriter::Finish() {
  std::string header;
  AppendBigEndian(header, bytes_.size() - kFrameHeaderBytes, kFrameHeaderBytes);
  bytes_.replace(0, kFrameHeaderBytes, header);
  return std::exchange(bytes_, {});
}

FrameParser::FrameParser(std::string_view body) : rest_(body) { type_ = static_cast<FrameType>(U8()); }

uint8_t FrameParser::U8() { return static_cast<uint8_t>(ReadBigEndian(Raw(1))); }

uint32_t FrameParser::U32() { return static_cast<uint32_t>(ReadBigEndian(Raw(4))); }

int64_t FrameParser::I64() { return static_cast<int64_t>(ReadBigEndian(Raw(8))); }

std::string_view FrameParser::Raw(size_t count) {
  if (failed_ || count > rest_.size()) {
    failed_ = true;
    return {};
  }
  const std::string_view bytes = rest_.substr(0, count);
  rest_.remove_prefix(count);
  return bytes;
}

std::string_view FrameParser::String(size_t max_bytes) {
  const uint32_t size = U32();
  if (size > max_bytes) failed_ = true;
  return Raw(size);
}

Status FrameParser::Finish() const {
  if (failed_) return InvalidArgument("frame: shorter than its type needs, or a string in it is too long");
  if (!rest_.empty()) return InvalidArgument("frame: longer than its type needs");
  return {};
}

void FrameBuffer::Append(std::string_view bytes) {
  if (consumed_ > 0) {
    buffer_.erase(0, consumed_);
    consumed_ = 0;
    // One large value must not be paid for by the connection for the rest of its life.
    if (buffer_.empty() && buffer_.capacity() > 64 * 1024) buffer_.shrink_to_fit();
  }
  buffer_ += bytes;
}

Result<std::optional<std::string_view>> FrameBuffer::Next() {
  const std::string_view rest = std::string_view(buffer_).substr(consumed_);
  if (rest.size() < kFrameHeaderBytes) return std::optional<std::string_view>();
  const uint64_t size = ReadBigEndian(rest.substr(0, kFrameHeaderBytes));
  if (size == 0 || size > max_frame_bytes_) {
    return InvalidArgument("frame of " + std::to_string(size) + " bytes where 1 to " +
                           std::to_string(max_frame_bytes_) + " are allowed");
  }
  if (rest.size() - kFrameHeaderBytes < size) return std::optional<std::string_view>();
  consumed_ += kFrameHeaderBytes + size;
  return std::optional(rest.substr(kFrameHeaderBytes, size));
}

}  // namespace lockstep::contract
