#include "tests/unit/parameter_server/served_job.h"

#include <algorithm>
#include <utility>

namespace lockstep::testing {

using namespace trainer;                    // NOLINT(google-build-using-namespace)
using namespace trainer::parameter_server;  // NOLINT(google-build-using-namespace)

namespace {

using Clock = std::chrono::steady_clock;

ParameterLayout LayoutOf(const ServedJob& job) {
  ParameterLayout layout;
  for (const int64_t size : job.variables) {
    layout.variables.push_back({.name = "v" + std::to_string(layout.variables.size()),
                                .shape = Shape({size}),
                                .offset = layout.total,
                                .size = size});
    layout.total += (size + kVariablePadding - 1) / kVariablePadding * kVariablePadding;
  }
  return layout;
}

float Target(int64_t epoch, int64_t sample, size_t parameter) {
  return static_cast<float>((static_cast<size_t>(epoch * 7 + sample) * 31 + parameter) % 17) / 8;
}

Optimizer& Keep(std::unique_ptr<Optimizer>& place, const ServedJob& job, Backend& backend) {
  place = MakeOptimizer(job.optimizer, backend);
  return *place;
}

}  // namespace

Commit ComputeGradient(const std::vector<float>& parameters, const parameter_server::Work& work,
                       std::vector<float>* gradients) {
  const float scale = 1.0f / static_cast<float>(work.batch_samples);
  Commit report;
  for (size_t i = 0; i < parameters.size(); ++i) {
    // The first few samples differ for each parameter; the sum of the others is the same for all.
    float sum = 0;
    const int64_t each = std::min<int64_t>(work.count, 3);
    for (int64_t s = work.first; s < work.first + each; ++s) sum += parameters[i] - Target(work.epoch, s, i);
    (*gradients)[i] = sum * scale;
    if (i < 8) report.loss_sum += static_cast<double>(sum) * static_cast<double>(sum);
  }
  report.correct = work.count;
  return report;
}

ServedThreads::ServedThreads(ServedJob job)
    : job_(std::move(job)),
      layout_(LayoutOf(job_)),
      pieces_(Partition(layout_, job_.servers, Spread::kLeastLoaded)),
      counts_(static_cast<size_t>(job_.workers)) {
  job_.board.workers = job_.workers;
  const auto slots =
      static_cast<size_t>(MakeOptimizer(job_.optimizer, *MakeBackend({.threads = 1}))->slots());
  saved_.assign(1 + slots, std::vector<float>(static_cast<size_t>(layout_.total)));
  for (int i = 0; i < job_.servers; ++i) servers_.push_back(std::make_unique<Running>());
}

ServedThreads::~ServedThreads() {
  for (int i = 0; i < job_.servers; ++i) LoseServer(i);
  JoinWorkers();
}

Membership ServedThreads::Self(int rank) const {
  return {.token = token_, .job = "served", .generation = 0, .rank = rank};
}

void ServedThreads::StartServer(int index) {
  Running& running = *servers_[static_cast<size_t>(index)];
  running.lost = false;
  running.thread = std::thread([this, &running, index] {
    if (index == 0) {
      RunFirst(running);
    } else {
      RunOther(running, index);
    }
  });
}

void ServedThreads::RunFirst(Running& running) {
  const auto backend = MakeBackend({.threads = 1});
  std::unique_ptr<Optimizer> optimizer;
  Shard shard({.floats = FloatsIn(pieces_[0]),
               .ranges = RangesOf(layout_, pieces_[0]),
               .most_staged = static_cast<size_t>(job_.board.parts + 2 * job_.workers)},
              Keep(optimizer, job_, *backend));
  Coordinator coordinator(
      {.board = job_.board,
       .pieces = pieces_,
       .floats = layout_.total,
       .evaluator = job_.evaluator,
       .validates = true,
       .tests = true,
       .meeting_time = std::chrono::seconds(30),
       .patience = std::chrono::seconds(2),
       .save_after = [this](int64_t version, bool) { return version % job_.save_every == 0; },
       .on_update =
           [this](const Coordinator::Options::News& news) {
             const std::lock_guard lock(mutex_);
             updates_.push_back({news.update.version, news.update.epoch, news.update.batch.first,
                                 news.update.batch.count, news.update.age, news.dropped, news.update.loss});
             changed_.notify_all();
           }},
      shard);
  {
    const std::lock_guard lock(running.mutex);
    running.server = std::make_unique<Server>(Server::Options{.self = Self(100),
                                                              .reach = "127.0.0.1",
                                                              .index = 0,
                                                              .workers = job_.workers,
                                                              .servers = job_.servers,
                                                              .fingerprint = 7,
                                                              .answer_time = job_.answer_time},
                                              shard, &coordinator);
    running.server->Publish(store_, Clock::now() + std::chrono::seconds(30));
    running.coordinator = &coordinator;
  }
  std::string end;
  try {
    end = RunCoordinator(running, coordinator);
  } catch (const std::exception& error) {
    end = error.what();
  }
  const std::lock_guard guard(running.mutex);
  running.server.reset();
  running.coordinator = nullptr;
  if (running.lost) return;
  const std::lock_guard lock(mutex_);
  ended_ = end;
  changed_.notify_all();
}

std::string ServedThreads::RunCoordinator(Running& running, Coordinator& coordinator) {
  const auto begin = [&] {
    const auto state = std::make_shared<FlatState>(layout_.total, static_cast<int>(saved_.size()) - 1);
    WorkBoard::State board;
    {
      const std::lock_guard lock(mutex_);
      for (size_t i = 0; i < saved_.size(); ++i) {
        std::copy(saved_[i].begin(), saved_[i].end(), state->buffers[i].as<float>());
      }
      board = saved_board_;
      undone_ += static_cast<int64_t>(updates_.size()) - board.version;
      updates_.resize(static_cast<size_t>(board.version));
    }
    coordinator.Begin(board, state);
  };
  const auto save = [&] {
    const Coordinator::Snapshot snapshot = coordinator.TakeSnapshot();
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < saved_.size(); ++i) {
      std::copy_n(snapshot.state->buffers[i].as<float>(), saved_[i].size(), saved_[i].data());
    }
    saved_board_ = snapshot.board;
  };
  begin();
  while (true) {
    const Coordinator::Happening happening = coordinator.Await();
    if (running.lost) return "lost";
    switch (happening) {
      case Coordinator::Happening::kSnapshot:
        save();
        break;
      case Coordinator::Happening::kServerLost:
        begin();
        break;
      case Coordinator::Happening::kDone:
        coordinator.End(false);
        (void)store_.Add(kFinishedKey, 1, Clock::now());
        return "finished";
      case Coordinator::Happening::kStop:
        if (coordinator.WantSnapshot() && coordinator.Await() == Coordinator::Happening::kSnapshot) save();
        coordinator.End(true);
        return "stopped";
    }
  }
}

void ServedThreads::RunOther(Running& running, int index) {
  const auto backend = MakeBackend({.threads = 1});
  std::unique_ptr<Optimizer> optimizer;
  const auto& pieces = pieces_[static_cast<size_t>(index)];
  Shard shard({.floats = FloatsIn(pieces),
               .ranges = RangesOf(layout_, pieces),
               .most_staged = static_cast<size_t>(job_.board.parts + 2 * job_.workers)},
              Keep(optimizer, job_, *backend));
  Server server({.self = Self(100 + index),
                 .reach = "127.0.0.1",
                 .index = index,
                 .workers = job_.workers,
                 .servers = job_.servers,
                 .fingerprint = 7,
                 .answer_time = job_.answer_time},
                shard, nullptr);
  server.Publish(store_, Clock::now() + std::chrono::seconds(30));
  Follower follower({.self = Self(100 + index),
                     .who = {.role = PeerRole::kServer, .index = index, .fingerprint = 7},
                     .answer_time = job_.answer_time,
                     .stop_time = std::chrono::milliseconds(0)},
                    store_, shard, [](const Command&) {});
  {
    const std::lock_guard lock(running.mutex);
    running.follower = &follower;
    if (running.lost) follower.RequestStop();
  }
  try {
    follower.Run();
  } catch (const std::exception&) {
    // Server 0 is gone for good; the test says whether it may be.
  }
  const std::lock_guard lock(running.mutex);
  running.follower = nullptr;
}

void ServedThreads::LoseServer(int index) {
  Running& running = *servers_[static_cast<size_t>(index)];
  {
    const std::lock_guard lock(running.mutex);
    running.lost = true;
    running.server.reset();  // nobody hears any more of what its end is
    if (running.coordinator != nullptr) running.coordinator->RequestStop();
    if (running.follower != nullptr) running.follower->RequestStop();
  }
  if (running.thread.joinable()) running.thread.join();
}

void ServedThreads::AskToStop() {
  const std::lock_guard lock(servers_[0]->mutex);
  if (servers_[0]->coordinator != nullptr) servers_[0]->coordinator->RequestStop();
}

std::string ServedThreads::AwaitEnd() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::seconds(60), [&] { return !ended_.empty(); });
  return ended_;
}

bool ServedThreads::AwaitVersion(int64_t version) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(60), [&] {
    return static_cast<int64_t>(updates_.size()) >= version || !ended_.empty();
  });
}

std::unique_ptr<Client> ServedThreads::NewClient(PeerRole role, int index) {
  return std::make_unique<Client>(PeerOptions{.self = Self(index),
                                              .who = {.role = role, .index = index, .fingerprint = 7},
                                              .answer_time = job_.answer_time,
                                              .away_time = std::chrono::seconds(30)},
                                  store_, pieces_);
}

int64_t ServedThreads::Work(int index, const std::function<void(const parameter_server::Work&)>& each) {
  const auto client = NewClient(PeerRole::kWorker, index);
  std::vector<float> parameters(static_cast<size_t>(layout_.total)), gradients(parameters.size());
  int64_t counted = 0;
  while (true) {
    const parameter_server::Work work = client->NextWork();
    if (work.task == Task::kEnd || work.task == Task::kStop) break;
    if (work.task == Task::kNothing) continue;
    const Client::Fetched fetched = client->Pull(work, parameters);
    if (work.task == Task::kEvaluate) {
      client->HaveParameters();
      continue;
    }
    if (!fetched.valid) continue;
    Commit report = ComputeGradient(parameters, work, &gradients);
    report.version = fetched.version;
    if (each) each(work);
    if (!client->Push(work, gradients, report)) continue;
    ++counted;
    ++counts_[static_cast<size_t>(index)];
  }
  client->Leave();
  return counted;
}

void ServedThreads::StartWorker(int index, const std::function<void(const parameter_server::Work&)>& each) {
  workers_.emplace_back([this, index, each] {
    try {
      Work(index, each);
    } catch (const std::exception&) {
      // It found no server any more; the test says whether that may be.
    }
  });
}

void ServedThreads::JoinWorkers() {
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

std::vector<ServedThreads::Update> ServedThreads::updates() const {
  const std::lock_guard lock(mutex_);
  return updates_;
}

int64_t ServedThreads::undone() const {
  const std::lock_guard lock(mutex_);
  return undone_;
}

std::vector<float> ServedThreads::parameters() const {
  const std::lock_guard lock(mutex_);
  return saved_.front();
}

std::string ServedThreads::AddressOf(int server) {
  const auto where = store_.Get(AddressKey(server), Clock::now() + std::chrono::seconds(30));
  return where.ok() ? where->substr(0, where->find(' ')) : "";
}

Alone TrainAlone(const ServedJob& job) {
  const auto backend = MakeBackend({.threads = 1});
  const auto optimizer = MakeOptimizer(job.optimizer, *backend);
  const ParameterLayout layout = LayoutOf(job);
  const size_t bytes = static_cast<size_t>(layout.total) * sizeof(float);
  const Buffer flat[] = {ZeroedHostBuffer(bytes), ZeroedHostBuffer(bytes), ZeroedHostBuffer(bytes)};
  Alone alone{.parameters = std::vector<float>(static_cast<size_t>(layout.total))};
  WorkBoard board(job.board);
  while (true) {
    std::vector<std::vector<float>> parts;
    std::optional<WorkBoard::Update> update;
    while (!update) {
      const auto taken = board.Take(0, {});
      if (!taken) return alone;
      std::vector<float> gradients(alone.parameters.size());
      const Commit report = ComputeGradient(alone.parameters,
                                            {.epoch = taken->epoch,
                                             .first = taken->samples.first,
                                             .count = taken->samples.count,
                                             .batch_samples = taken->batch_samples},
                                            &gradients);
      parts.push_back(std::move(gradients));
      update = board.Commit(0, taken->lease, {.loss_sum = report.loss_sum, .correct = report.correct}).update;
    }
    for (size_t p = 1; p < parts.size(); ++p) {
      for (size_t i = 0; i < parts[0].size(); ++i) parts[0][i] += parts[p][i];
    }
    std::copy(alone.parameters.begin(), alone.parameters.end(), flat[0].as<float>());
    optimizer->Update(update->version,
                      {.parameters = flat[0].as<float>(),
                       .gradients = parts[0].data(),
                       .slots = {flat[1].as<float>(), flat[2].as<float>()}},
                      0, layout.total, {});
    std::copy_n(flat[0].as<float>(), alone.parameters.size(), alone.parameters.data());
    alone.losses.push_back(update->loss);
  }
}

}  // namespace lockstep::testing
