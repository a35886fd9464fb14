#include "common/contract/store_protocol.h"

#include <charconv>

namespace lockstep::contract {

namespace {

constexpr size_t kMaxMessageBytes = 16 * 1024;

size_t BodyBytes(const StoreRequest& request) {
  size_t bytes = 1 + 4 + 4 + 4 + 4 + request.value.size() + 8;
  for (const std::string& key : request.keys) bytes += 4 + key.size();
  return bytes;
}

bool IsVerb(FrameType type) {
  return type == FrameType::kSet || type == FrameType::kGet || type == FrameType::kAdd ||
         type == FrameType::kWait;
}

}  // namespace

Status CheckRequest(const StoreRequest& request) {
  if (request.keys.empty()) return InvalidArgument("store: no key given");
  for (const std::string& key : request.keys) {
    if (key.empty()) return InvalidArgument("store: an empty key");
    if (key.size() > kMaxKeyBytes) {
      return InvalidArgument("store: a key of " + std::to_string(key.size()) + " bytes, at most " +
                             std::to_string(kMaxKeyBytes) + " are allowed");
    }
  }
  if (request.value.size() > kMaxValueBytes) {
    return InvalidArgument("store: key " + request.keys[0] + ": a value of " +
                           std::to_string(request.value.size()) + " bytes, at most " +
                           std::to_string(kMaxValueBytes) + " are allowed");
  }
  if (BodyBytes(request) > kMaxStoreFrameBytes) {
    return InvalidArgument("store: " + std::to_string(request.keys.size()) +
                           " keys are too many to wait for at once");
  }
  return {};
}

std::string EncodeRequest(const StoreRequest& request) {
  FrameWriter writer(request.verb);
  writer.U32(request.id).U32(request.timeout_ms).U32(static_cast<uint32_t>(request.keys.size()));
  for (const std::string& key : request.keys) writer.String(key);
  return writer.String(request.value).I64(request.amount).Finish();
}

Result<StoreRequest> DecodeRequest(std::string_view body) {
  FrameParser parser(body);
  StoreRequest request;
  request.verb = parser.type();
  request.id = parser.U32();
  request.timeout_ms = parser.U32();
  const uint32_t count = parser.U32();
  // The count is only a claim; every key takes at least its length's four bytes.
  if (count > body.size() / 4) return InvalidArgument("frame: more keys than it can hold");
  for (uint32_t i = 0; i < count; ++i) request.keys.emplace_back(parser.String(kMaxKeyBytes));
  request.value = parser.String(kMaxValueBytes);
  request.amount = parser.I64();
  LOCKSTEP_RETURN_IF_ERROR(parser.Finish());
  if (!IsVerb(request.verb) || request.id == 0) return InvalidArgument("frame: not a request to the store");
  if (request.keys.size() > 1 && request.verb != FrameType::kWait)
    return InvalidArgument("frame: more than one key");
  LOCKSTEP_RETURN_IF_ERROR(CheckRequest(request));
  return request;
}

std::string EncodeReply(const StoreReply& reply) {
  return FrameWriter(FrameType::kReply)
      .U32(reply.id)
      .U8(static_cast<uint8_t>(reply.status.code()))
      .String(std::string_view(reply.status.message()).substr(0, kMaxMessageBytes))
      .String(reply.value)
      .Finish();
}

Result<StoreReply> DecodeReply(std::string_view body) {
  FrameParser parser(body);
  StoreReply reply;
  reply.id = parser.U32();
  const uint8_t code = parser.U8();
  std::string message(parser.String(kMaxMessageBytes));
  reply.value = parser.String(kMaxValueBytes);
  LOCKSTEP_RETURN_IF_ERROR(parser.Finish());
  if (parser.type() != FrameType::kReply || code > static_cast<uint8_t>(StatusCode::kInternal)) {
    return InvalidArgument("frame: not a reply of the store");
  }
  reply.status = Status(static_cast<StatusCode>(code), std::move(message));
  return reply;
}

Result<int64_t> AddToCounter(std::string_view current, int64_t amount) {
  int64_t value = 0;
  if (!current.empty()) {
    const auto [end, error] = std::from_chars(current.data(), current.data() + current.size(), value);
    if (error != std::errc() || end != current.data() + current.size()) {
      return InvalidArgument("store: add to a value that is no decimal number");
    }
  }
  int64_t sum = 0;
  if (__builtin_add_overflow(value, amount, &sum)) return InvalidArgument("store: add overflows 64 bits");
  return sum;
}

}  // namespace lockstep::contract
