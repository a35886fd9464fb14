#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/contract/store.h"
#include "trainer/parameter_server/connection.h"
#include "trainer/parameter_server/partition.h"
#include "trainer/parameter_server/protocol.h"

namespace lockstep::trainer::parameter_server {

// Between two tries to reach a server that is away.
inline constexpr std::chrono::milliseconds kRetryPause{50};

// Who connects to servers, and how patient it is.
struct PeerOptions {
  Membership self;
  Attach who;
  std::chrono::milliseconds answer_time = std::chrono::seconds(30);  // of a server, to anything
  std::chrono::milliseconds away_time = std::chrono::minutes(2);     // until a server is back
  // A server other than server 0 that is asked to stop: until server 0 has had its state, to save it.
  std::chrono::milliseconds stop_time = std::chrono::seconds(15);
};

// Finds the server by the store. Throws ConnectionLost when it is not there (now), BadModel when it refuses
// this process.
Connection ConnectToServer(const PeerOptions& options, contract::Store& store, int64_t server);
// Whether the job is over for everybody.
bool IsFinished(contract::Store& store);

// A worker's or the evaluator's way to all servers. One thread. A server that is lost is looked for again,
// for `away_time`; what was under way with it is void, and NextWork goes on from there.
class Client {
 public:
  // `pieces`: of every server. The store outlives this.
  Client(PeerOptions options, contract::Store& store, std::vector<std::vector<Piece>> pieces);

  // What to do next; kNothing about once a second while there is nothing. Throws CollectiveLost when a server
  // stays away.
  Work NextWork();

  // The newest parameters, at least those of work.version, into the flat buffer. `version` is server 0's.
  // False: the work is void.
  struct Fetched {
    bool valid = false;
    bool changed = false;  // the buffer was written
    int64_t version = 0;
  };
  Fetched Pull(const Work& work, std::span<float> parameters);
  void HaveParameters();  // after Pull, of an evaluation

  // Brings the gradient of the work to all servers, then commits it. Whether it counts.
  bool Push(const Work& work, std::span<const float> gradients, const Commit& report);

  // Says goodbye.
  void Leave();

  double waited_seconds() const { return waited_; }  // in all of these, so far

 private:
  using Clock = std::chrono::steady_clock;

  void Connect();
  Connection& At(size_t server);
  // Runs it; when a connection is lost, closes all and returns false.
  template <typename Talk>
  bool Try(const Talk& talk);

  PeerOptions options_;
  contract::Store& store_;
  std::vector<std::vector<Piece>> pieces_;
  std::vector<std::optional<Connection>> connections_;
  std::vector<int64_t> have_;  // versions, by server
  int64_t have_era_ = 0;
  double waited_ = 0;
};

}  // namespace lockstep::trainer::parameter_server
