#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract/frame.h"
#include "common/contract/store.h"
#include "common/contract/store_protocol.h"
#include "common/contract/token.h"
#include "common/unique_fd.h"

namespace lockstep::contract {

// The store of the job, over TCP: what a rank uses. Any number of threads may call at once; a long Wait of
// one does not hold up the others.
//
// The deadline of a call is the caller's; the store is told of a slightly earlier one (by 500 ms, or a
// quarter of what is left), so that its answer, which names what is missing, is here in time. A call that got
// no answer by its deadline has failed with kDeadlineExceeded, and may have been done; the connection goes
// on.
class StoreClient : public Store {
 public:
  struct Options {
    std::string address = {};  // HOST:PORT, [V6]:PORT
    Token token;
    std::string job = {};
    int64_t generation = 0;
    int32_t rank = 0;
    std::string store_id = {};  // hexadecimal digits; empty: any store that knows the token
    Deadline deadline = {};     // of the connecting
  };

  // Tries again, with growing and jittered pauses, while the name is not known, the connection is refused or
  // breaks off, or the store has not begun this generation. Fails at once with kPermissionDenied for another
  // token, another store or an old generation, kInvalidArgument for another job or a malformed address, and
  // kFailedPrecondition for a port on which no store listens.
  static Result<std::unique_ptr<StoreClient>> Connect(const Options& options);

  ~StoreClient() override;

  Status Set(std::string_view key, std::string_view value, Deadline deadline) override;
  Result<std::string> Get(std::string_view key, Deadline deadline) override;
  Result<int64_t> Add(std::string_view key, int64_t amount, Deadline deadline) override;
  Status Wait(const std::vector<std::string>& keys, Deadline deadline) override;

 private:
  StoreClient(UniqueFd socket, std::string address);

  static Result<std::unique_ptr<StoreClient>> ConnectOnce(const Options& options);
  Status Handshake(const Options& options);
  Result<std::string> ReceiveFrame(Deadline deadline);

  Result<std::string> Call(StoreRequest request, Deadline deadline);
  Status SendAll(std::string_view frame, Deadline deadline);
  Status ReceiveSome(Deadline deadline);
  void Dispatch();
  void Fail(Status status);

  const UniqueFd socket_;
  const std::string address_;

  // One thread at a time writes; one at a time reads, for all that wait, and hands the answers out.
  FrameBuffer received_{kMaxHandshakeFrameBytes};  // of the thread that reads
  std::mutex mutex_;                               // guards all below
  std::condition_variable changed_;
  bool writing_ = false;
  bool reading_ = false;
  uint32_t next_id_ = 1;
  std::map<uint32_t, std::optional<StoreReply>> calls_;  // under way; empty: not answered
  Status failed_;                                        // once not OK, for every call
};

// The store that the launcher of this process serves, as its environment says (environment.h): RANK and
// LOCKSTEP_* JOB, GENERATION, STORE_ADDRESS, TOKEN_FILE, and RUN where it is set: which store it must be.
// kFailedPrecondition, naming the variable, if one is not there or makes no sense.
Result<std::unique_ptr<Store>> StoreFromEnvironment(Store::Deadline deadline);

}  // namespace lockstep::contract
