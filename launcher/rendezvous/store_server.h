#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/contract/authentication.h"
#include "common/contract/store_address.h"
#include "common/contract/store_protocol.h"
#include "common/contract/token.h"
#include "common/event_loop.h"
#include "common/status.h"
#include "common/unique_fd.h"
#include "launcher/rendezvous/channel.h"
#include "launcher/rendezvous/store_table.h"

namespace lockstep::rendezvous {

// The id of the store of that name, kStoreIdBytes raw bytes: the digits of a name that is a UUID, a digest of
// any other.
std::string StoreIdOf(const std::string& name);

// The rendezvous port: it lets in who knows the job's token, serves the store to the ranks of the current
// generation, and hands connections of launchers to their owner.
//
// Whoever else comes by (another token, HTTP, a port scan, a connection that says nothing) is dropped without
// an answer and counted; it holds one of max_half_open places for at most handshake_deadline, and the oldest
// such place is given up for a newcomer, so that strangers never keep ranks out.
class StoreServer {
 public:
  using Clock = std::chrono::steady_clock;

  // A launcher that has proved that it knows the token. Its channel has no handler yet, and was sent no
  // Welcome.
  using OnLauncher = std::function<void(std::unique_ptr<Channel>, const contract::PeerIdentity&)>;

  struct Options {
    EventLoop* loop = nullptr;
    contract::Token token;
    std::string job = {};
    std::string address = "127.0.0.1:0";  // HOST:PORT to listen on; an empty host: all addresses
    OnLauncher on_launcher = {};          // empty: launchers are refused
    std::string name = {};                // what the store's id is made of; empty: a random id
    Clock::duration handshake_deadline = std::chrono::seconds(5);
    size_t max_half_open = 64;
    size_t max_connections = 4096;
    size_t max_bytes = size_t{256} << 20;  // of keys and values
    size_t max_pending_requests = 64;      // waiting at once, a connection
  };

  struct Statistics {
    int64_t accepted = 0;
    int64_t authenticated = 0;
    int64_t strangers = 0;      // no handshake, or a wrong proof
    int64_t timed_out = 0;      // said nothing in time
    int64_t evicted = 0;        // gave their place to a newcomer
    int64_t refused = 0;        // knew the token, but were of another job or generation
    int64_t malformed = 0;      // ranks that sent nonsense
    int64_t accept_pauses = 0;  // out of descriptors or memory
    int64_t over_limit = 0;     // connections beyond max_connections
  };

  // Listening when this returns. kUnavailable with the address in the message if it is taken.
  static Result<std::unique_ptr<StoreServer>> Create(Options options);
  ~StoreServer();

  // From now on ranks [0, world_size) of `generation` are served, by an empty store. As EndGeneration() for
  // the one before.
  void BeginGeneration(int64_t generation, int world_size);

  // All that its ranks wait for fails with kAborted and `reason`, and so does every later call of theirs;
  // their connections are closed. Ranks of this or an older generation are refused from now on. Does nothing
  // if none is under way.
  void EndGeneration(const std::string& reason);

  // "ranks 2, 3 have not connected to the store; rank 0 has left it", or empty if all are here.
  std::string AbsentRanks() const;

  uint16_t port() const { return port_; }
  const std::string& host() const { return host_; }  // numeric; "::" or "0.0.0.0": all addresses
  std::string store_id() const;                      // hexadecimal digits
  const Statistics& statistics() const { return statistics_; }
  size_t half_open() const { return half_open_.size(); }
  size_t connections() const { return connections_.size(); }

 private:
  using ConnectionId = uint64_t;
  struct Pending;
  struct Connection;

  explicit StoreServer(Options options);
  Status Listen();

  void Accept();
  void Admit(UniqueFd socket);
  void OnHandshakeFrame(ConnectionId id, std::string_view body);
  void OnAuthenticated(ConnectionId id);
  Status CheckRank(const contract::PeerIdentity& identity) const;
  void Drop(ConnectionId id, int64_t& counter);
  // Sends `last_frame` and closes once the peer has had the time to read it.
  void Dismiss(ConnectionId id, std::string last_frame);
  void Remove(ConnectionId id);

  void OnRequest(ConnectionId id, std::string_view body);
  void Park(ConnectionId id, contract::StoreRequest request);
  void OnPendingComplete(ConnectionId id, uint32_t request_id);
  void OnPendingTimeout(ConnectionId id, uint32_t request_id);
  void Reply(ConnectionId id, contract::StoreReply reply);

  Options options_;
  EventLoop& loop_;
  const std::string store_id_;
  UniqueFd listener_;
  std::string host_;
  uint16_t port_ = 0;
  EventLoop::TimerId accept_again_ = 0;

  int64_t generation_ = -1;
  bool serving_ = false;
  std::vector<int> rank_connections_;  // by rank: open ones
  std::vector<bool> rank_seen_;
  StoreTable table_;

  ConnectionId next_connection_ = 1;
  std::map<ConnectionId, std::unique_ptr<Connection>> connections_;
  std::list<ConnectionId> half_open_;  // the oldest first
  Statistics statistics_;
};

}  // namespace lockstep::rendezvous
