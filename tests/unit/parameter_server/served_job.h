#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/collectives/ranks.h"
#include "trainer/backend/factory.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/parameter_server/client.h"
#include "trainer/parameter_server/coordinator.h"
#include "trainer/parameter_server/follower.h"
#include "trainer/parameter_server/server.h"

namespace lockstep::testing {

// A job whose workers, servers and evaluator are threads of the test, connected as processes are, on a
// made-up problem: each parameter is to become the mean of what the samples say of it.
struct ServedJob {
  int servers = 2;
  int workers = 3;
  bool evaluator = false;
  trainer::parameter_server::WorkBoard::Options board{
      .samples = 200, .batch_size = 24, .epochs = 3, .parts = 3, .workers = 3};
  trainer::OptimizerOptions optimizer{.kind = trainer::OptimizerKind::kAdam, .learning_rate = 0.05};
  std::vector<int64_t> variables{70'000, 40, 1000, 10};
  int64_t save_every = 5;  // updates
  std::chrono::milliseconds answer_time{20'000};
};

// ∂/∂w of the mean over the samples of (w − t)²/2, and the loss of that, for one number of all parameters.
trainer::parameter_server::Commit ComputeGradient(const std::vector<float>& parameters,
                                                  const trainer::parameter_server::Work& work,
                                                  std::vector<float>* gradients);

class ServedThreads {
 public:
  explicit ServedThreads(ServedJob job);
  ~ServedThreads();

  struct Update {
    int64_t version, epoch, first, count, age, dropped;
    double loss;
  };

  void StartServer(int index);
  // As if its process were killed; returns when it is gone.
  void LoseServer(int index);
  void AskToStop();
  // Until server 0 is through; then all are. "finished", "stopped" or what it has thrown.
  std::string AwaitEnd();
  bool AwaitVersion(int64_t version);

  std::unique_ptr<trainer::parameter_server::Client> NewClient(trainer::parameter_server::PeerRole role,
                                                               int index);
  // A whole worker: how many of its gradients counted. `each` is called before each commit.
  int64_t Work(int index, const std::function<void(const trainer::parameter_server::Work&)>& each = {});
  // The same on a thread of its own.
  void StartWorker(int index, const std::function<void(const trainer::parameter_server::Work&)>& each = {});
  int64_t CountsOf(int worker) const { return counts_[static_cast<size_t>(worker)]; }
  void JoinWorkers();

  std::vector<Update> updates() const;  // that count
  int64_t undone() const;
  std::vector<float> parameters() const;  // at the end
  trainer::parameter_server::Membership Self(int rank) const;
  contract::Store& store() { return store_; }
  const ServedJob& job() const { return job_; }
  const trainer::ParameterLayout& layout() const { return layout_; }
  std::string AddressOf(int server);

 private:
  struct Running {
    std::atomic<bool> lost{false};
    std::mutex mutex;
    trainer::parameter_server::Coordinator* coordinator = nullptr;
    std::unique_ptr<trainer::parameter_server::Server> server;  // beside the coordinator
    trainer::parameter_server::Follower* follower = nullptr;
    std::thread thread;
  };
  void RunFirst(Running& running);
  void RunOther(Running& running, int index);
  std::string RunCoordinator(Running& running, trainer::parameter_server::Coordinator& coordinator);

  ServedJob job_;
  trainer::ParameterLayout layout_;
  std::vector<std::vector<trainer::parameter_server::Piece>> pieces_;
  InMemoryStore store_;
  contract::Token token_ = contract::Token::Random();
  std::vector<std::unique_ptr<Running>> servers_;
  std::vector<std::thread> workers_;
  std::vector<std::atomic<int64_t>> counts_;

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::vector<Update> updates_;
  int64_t undone_ = 0;
  std::string ended_;
  trainer::parameter_server::WorkBoard::State saved_board_;
  std::vector<std::vector<float>> saved_;  // parameters, slots
};

// The same training in one piece: the parameters at the end, and the losses.
struct Alone {
  std::vector<float> parameters;
  std::vector<double> losses;
};
Alone TrainAlone(const ServedJob& job);

}  // namespace lockstep::testing
