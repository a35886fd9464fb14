#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "common/contract/store.h"
#include "common/unique_fd.h"
#include "trainer/parameter_server/connection.h"
#include "trainer/parameter_server/coordinator.h"
#include "trainer/parameter_server/shard.h"

namespace lockstep::trainer::parameter_server {

// Where server `index` is to be found: its value is "HOST:PORT ID", and whoever starts in its place writes it
// anew.
std::string AddressKey(int64_t index);
// Counts up once all is done: who comes later has nothing to do any more.
inline constexpr char kFinishedKey[] = "ps/finished";

// Lets workers, the evaluator and, at server 0, other servers in, each on a thread of its own. Who does not
// know the token is let go after five seconds at the latest, and no more than `most_strangers` of them are
// looked at at once. A peer that sends nonsense loses its connection.
class Server {
 public:
  struct Options {
    Membership self;
    std::string interface;  // see Listen
    std::string reach;
    int64_t index = 0;
    int64_t workers = 1;
    int64_t servers = 1;
    int64_t fingerprint = 0;
    std::chrono::milliseconds answer_time = std::chrono::seconds(30);  // of a peer, to whatever is sent
    size_t most_strangers = 64;
  };

  // Listening when this returns. The shard, and server 0's coordinator (else null), outlive it. Throws
  // RendezvousFailed.
  Server(Options options, Shard& shard, Coordinator* coordinator);
  // Ends all connections.
  ~Server();

  // Tells the store. Throws RendezvousFailed.
  void Publish(contract::Store& store, contract::Store::Deadline deadline) const;
  const std::string& address() const { return listener_.address; }
  std::string id() const;  // of this very process, hexadecimal digits

 private:
  struct Peer {
    explicit Peer(UniqueFd socket) : connection(std::move(socket)) {}
    Connection connection;
    std::atomic<bool> stranger{true};
    std::atomic<bool> ended{false};
    std::thread thread;
  };

  void AcceptLoop();
  void Accept();
  void Reap();
  void Serve(Peer& peer);
  void ServeClient(Connection& connection, const Attach& who, int64_t ticket);
  void ServeServer(Connection& connection, const Attach& who, int64_t ticket);
  std::string Refusal(const Attach& who) const;
  void Answer(Connection& connection, const Attach& who, int64_t ticket, const std::string& question);
  void AnswerPull(Connection& connection, const Pull& pull);
  void AnswerStage(Connection& connection, int64_t worker, const Stage& stage);

  const Options options_;
  Shard& shard_;
  Coordinator* coordinator_;
  const std::string raw_id_;
  Listener listener_;
  UniqueFd end_;
  std::list<Peer> peers_;  // the accepting thread's
  std::thread thread_;
};

}  // namespace lockstep::trainer::parameter_server
