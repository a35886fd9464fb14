#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/parameter_server/partition.h"
#include "trainer/parameter_server/pool.h"
#include "trainer/parameter_server/protocol.h"
#include "trainer/parameter_server/shard.h"
#include "trainer/parameter_server/work_board.h"

namespace lockstep::trainer::parameter_server {

// The state of all servers in one, in the layout's order.
struct FlatState {
  FlatState(int64_t floats, int slots);
  std::span<float> parameters() const { return buffers.front().span<float>(); }
  std::span<float> slot(size_t index) const { return buffers[1 + index].span<float>(); }
  std::vector<Buffer> buffers;  // parameters, slots
};

// Server 0's second part. It gives out the work, decides which gradients count, numbers the updates, and
// orders the other servers to do what it does with its own shard, in the same order. When one of them is lost
// its era is over, and the next begins from a state that all have in common.
//
// One thread, the owner's, calls Begin, Await, Snapshot… and End; what the threads of the connections call is
// said below. Nothing waits longer than it says.
class Coordinator {
 public:
  using Clock = std::chrono::steady_clock;

  struct Options {
    WorkBoard::Options board;
    std::vector<std::vector<Piece>> pieces;  // of every server
    int64_t floats = 0;
    bool evaluator = false;  // there is such a process; else worker 0 evaluates
    bool validates = false;  // there are samples for it
    bool tests = false;
    Clock::duration meeting_time = std::chrono::minutes(2);  // for lost servers to come back
    Clock::duration patience = std::chrono::seconds(10);     // with who is to fetch parameters, or to leave
    // Whether the state is to be saved after this update.
    std::function<bool(int64_t version, bool ends_epoch)> save_after;
    // Of each update, in order, while everything is locked.
    struct News {
      const WorkBoard::Update& update;
      int64_t total = 0;    // updates that there will be
      int64_t dropped = 0;  // gradients, since the update before
    };
    std::function<void(const News&)> on_update;
  };

  // The shard is server 0's own, and outlives this.
  Coordinator(Options options, Shard& shard);

  // --- The owner's.

  // An era from this state. Waits until all servers have it. Throws RendezvousFailed, naming who has not
  // come. `state` is let go of as soon as that is so.
  void Begin(const WorkBoard::State& board, std::shared_ptr<const FlatState> state);

  enum class Happening {
    kSnapshot,    // the state to save is complete: snapshot()
    kServerLost,  // all servers are to go back: Begin
    kDone,        // every batch is done, and their state, if it is to be saved, was snapshot
    kStop,        // asked to stop, and nobody computes any more (or for too long)
  };
  // Waits for the next of these.
  Happening Await();

  struct Snapshot {
    WorkBoard::State board;
    std::shared_ptr<const FlatState> state;
  };
  // After kSnapshot; once.
  Snapshot TakeSnapshot();
  // Asks for one of now, after kStop; then Await. False: there is no state.
  bool WantSnapshot();

  // Everybody is told that it is over, and given the time to hear it.
  void End(bool stopped);
  std::string lost_server() const;

  // --- Any thread's.

  void RequestStop();
  int64_t version() const;

  // --- The threads' of connections. Who comes again takes the place of who was there before: calls with an
  // older ticket throw ConnectionLost.

  int64_t Join(PeerRole role, int64_t index);
  void Part(PeerRole role, int64_t index, int64_t ticket);  // the connection is gone

  Work NextWork(PeerRole role, int64_t index, int64_t ticket, Deadline deadline);
  bool Count(int64_t worker, int64_t ticket, const Commit& commit);
  void HasParameters(PeerRole role, int64_t index, int64_t ticket);
  void Leaves(PeerRole role, int64_t index, int64_t ticket);

  // An order for another server, and what it is about.
  struct Dispatch {
    Command command;
    std::shared_ptr<const FlatState> load;
    std::shared_ptr<FlatState> fetch;
  };
  Dispatch NextOrder(int64_t server, int64_t ticket, Deadline deadline);
  void Done(int64_t server, int64_t ticket, const Dispatch& dispatch);
  std::span<const Piece> PiecesOf(int64_t server) const {
    return options_.pieces[static_cast<size_t>(server)];
  }

 private:
  struct Client {
    int64_t ticket = 0;  // of its connection; 0: none
    bool waiting = false;
    bool left = false;
    Clock::time_point seen{};
    int64_t told_steps = 0;
    int64_t told_samples = 0;
  };
  struct Server {
    int64_t ticket = 0;
    bool loaded = false;
    std::deque<Dispatch> orders;
  };
  struct Evaluation {
    int64_t epoch = 0;
    bool validation = false;
    bool test = false;
  };

  Client& ClientOf(PeerRole role, int64_t index);
  Client& Check(PeerRole role, int64_t index, int64_t ticket);
  bool Evaluates(PeerRole role, int64_t index) const {
    return options_.evaluator ? role == PeerRole::kEvaluator : role == PeerRole::kWorker && index == 0;
  }
  Client& EvaluatingClient() { return options_.evaluator ? evaluator_ : workers_.front(); }
  Work WorkFor(PeerRole role, int64_t index);
  void Tell(Client& client, Work* work);
  void Apply(const WorkBoard::Update& update);
  void OweEvaluation(const WorkBoard::Update& update);
  bool evaluation_is_due() const { return owed_ || under_way_; }
  void Void(int64_t worker, int64_t lease);
  void Broadcast(const Dispatch& dispatch);
  void StartSnapshot();
  void LoseServer(int64_t index);
  bool AllLeft(Clock::time_point since);

  Options options_;
  Shard& shard_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::optional<WorkBoard> board_;
  int64_t era_ = 0;
  bool running_ = false;
  bool stopping_ = false;
  Clock::time_point stop_asked_{};
  bool ending_ = false;
  int64_t next_ticket_ = 1;
  std::vector<Client> workers_;
  Client evaluator_;
  std::vector<Server> servers_;  // [0] is not used
  std::shared_ptr<const FlatState> loading_;
  int64_t lost_ = -1;  // server

  std::optional<Evaluation> owed_;
  std::optional<Evaluation> under_way_;
  bool holding_ = false;  // no work until the parameters of the epoch's end have been fetched
  Clock::time_point holding_since_{};

  // The snapshot: wanted, being collected, complete.
  bool snapshot_wanted_ = false;
  bool final_snapshot_ = false;  // of the end of all was begun
  int collecting_ = 0;           // servers that it lacks
  std::optional<Snapshot> snapshot_;
  Pool<FlatState> states_;  // for snapshots

  // What is told of: over all eras.
  int64_t steps_ = 0;
  int64_t samples_ = 0;
  int64_t dropped_ = 0;
  double loss_ = 0;
  int64_t epoch_ = 0;
};

}  // namespace lockstep::trainer::parameter_server
