#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract/frame.h"
#include "common/status.h"

// What a rank and the store say to each other once they know each other (authentication.h): requests with an
// id, any number under way at once, and one Reply for each, in whatever order they become ready. Pure.
namespace lockstep::contract {

inline constexpr size_t kMaxKeyBytes = 1024;
inline constexpr size_t kMaxValueBytes = 1 << 20;
inline constexpr size_t kMaxStoreFrameBytes = kMaxValueBytes + 8 * 1024;

struct StoreRequest {
  FrameType verb = FrameType::kGet;    // kSet, kGet, kAdd or kWait
  uint32_t id = 0;                     // the client's choice; not 0
  uint32_t timeout_ms = 0;             // how long the store may let kGet and kWait wait
  std::vector<std::string> keys = {};  // one, but for kWait
  std::string value = {};              // kSet
  int64_t amount = 0;                  // kAdd
};

struct StoreReply {
  uint32_t id = 0;  // 0: not an answer; the store says why it is about to close the connection
  Status status;
  std::string value = {};  // kGet: the value; kAdd: the sum, decimal
};

// kInvalidArgument, naming the limit, for a key or value that is too long, an empty key, no keys, or too
// many.
Status CheckRequest(const StoreRequest& request);

// `request` has passed CheckRequest().
std::string EncodeRequest(const StoreRequest& request);
Result<StoreRequest> DecodeRequest(std::string_view body);

std::string EncodeReply(const StoreReply& reply);
Result<StoreReply> DecodeReply(std::string_view body);

// The decimal number `current` (empty: 0) plus `amount`. kInvalidArgument if `current` is no 64-bit decimal
// number or the sum is none.
Result<int64_t> AddToCounter(std::string_view current, int64_t amount);

}  // namespace lockstep::contract
