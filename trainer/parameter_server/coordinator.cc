#include "trainer/parameter_server/coordinator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/contract/token.h"
#include "common/log.h"
#include "trainer/error.h"
#include "trainer/parameter_server/connection.h"

namespace lockstep::trainer::parameter_server {

namespace {

constexpr std::chrono::milliseconds kTick{200};

int64_t RandomEra() {
  int64_t era = 0;
  std::memcpy(&era, contract::RandomBytes(sizeof era).data(), sizeof era);
  return era == 0 ? 1 : era;
}

}  // namespace

FlatState::FlatState(int64_t floats, int slots) {
  for (int i = 0; i < 1 + slots; ++i) {
    buffers.push_back(ZeroedHostBuffer(static_cast<size_t>(floats) * sizeof(float)));
  }
}

Coordinator::Coordinator(Options options, Shard& shard)
    : options_(std::move(options)),
      shard_(shard),
      workers_(static_cast<size_t>(options_.board.workers)),
      servers_(options_.pieces.size()) {}

void Coordinator::Begin(const WorkBoard::State& board, std::shared_ptr<const FlatState> state) {
  const auto floats = static_cast<size_t>(shard_.floats());
  std::vector<std::vector<float>> dense;
  for (const Buffer& buffer : state->buffers) {
    dense.emplace_back(floats);
    Gather(PiecesOf(0), buffer.as<float>(), dense.back().data());
  }
  const std::vector<std::span<const float>> slots(dense.begin() + 1, dense.end());

  std::unique_lock lock(mutex_);
  board_.emplace(options_.board, board);
  era_ = RandomEra();
  lost_ = -1;
  holding_ = false;
  owed_.reset();
  under_way_.reset();
  snapshot_.reset();
  snapshot_wanted_ = false;
  final_snapshot_ = false;
  collecting_ = 0;
  loading_ = std::move(state);
  shard_.Load(era_, board.version, dense.front(), slots);
  for (Server& server : servers_) {
    server.loaded = false;
    server.orders.clear();
    server.orders.push_back(
        {.command = {.order = Order::kLoad, .era = era_, .version = board.version}, .load = loading_});
  }
  changed_.notify_all();
  const auto missing = [&] {
    return std::find_if(servers_.begin() + 1, servers_.end(), [](const Server& s) { return !s.loaded; });
  };
  changed_.wait_until(lock, Clock::now() + options_.meeting_time,
                      [&] { return missing() == servers_.end() || stopping_; });
  loading_.reset();
  if (missing() != servers_.end() && !stopping_) {
    throw RendezvousFailed("parameter server " + std::to_string(missing() - servers_.begin()) +
                           " has not come");
  }
  running_ = missing() == servers_.end();
  // A state in which everything is done already still has its last evaluation to come.
  if (board_->done()) {
    const Evaluation last{.epoch = options_.board.epochs - 1, .test = options_.tests};
    if (last.test) owed_ = last;
  }
  changed_.notify_all();
}

Coordinator::Happening Coordinator::Await() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (lost_ >= 0) {
      running_ = false;
      return Happening::kServerLost;
    }
    if (snapshot_ && collecting_ == 0) return Happening::kSnapshot;
    if (snapshot_wanted_ && !snapshot_ && running_) StartSnapshot();
    if (stopping_ && !snapshot_) {
      const bool late = Clock::now() - stop_asked_ > options_.patience / 2;
      if (!running_ || board_->leases_out() == 0 || late) return Happening::kStop;
    }
    if (running_ && board_->done() && !snapshot_ && !snapshot_wanted_) return Happening::kDone;
    if (snapshot_ && collecting_ == 0) continue;
    changed_.wait_for(lock, kTick);
  }
}

Coordinator::Snapshot Coordinator::TakeSnapshot() {
  const std::lock_guard lock(mutex_);
  Snapshot taken = std::move(*snapshot_);
  snapshot_.reset();
  return taken;
}

bool Coordinator::WantSnapshot() {
  const std::lock_guard lock(mutex_);
  if (running_) snapshot_wanted_ = true;
  return running_;
}

void Coordinator::StartSnapshot() {
  snapshot_wanted_ = false;
  const std::shared_ptr<FlatState> state =
      states_.Take([this] { return std::make_unique<FlatState>(options_.floats, shard_.slots()); });
  std::vector<std::vector<float>> dense(state->buffers.size(),
                                        std::vector<float>(static_cast<size_t>(shard_.floats())));
  shard_.Export(dense.front(), std::vector<std::span<float>>(dense.begin() + 1, dense.end()));
  for (size_t i = 0; i < dense.size(); ++i) {
    Scatter(PiecesOf(0), dense[i].data(), state->buffers[i].as<float>());
  }
  snapshot_ = Snapshot{.board = board_->state(), .state = state};
  collecting_ = static_cast<int>(servers_.size()) - 1;
  Broadcast({.command = {.order = Order::kState, .era = era_}, .fetch = state});
}

bool Coordinator::AllLeft(Clock::time_point since) {
  const auto gone = [&](const Client& client) {
    // Who is not there has a while to come back and hear it.
    return client.left ||
           (client.ticket == 0 && Clock::now() - std::max(since, client.seen) > options_.patience);
  };
  return std::all_of(workers_.begin(), workers_.end(), gone) && (!options_.evaluator || gone(evaluator_));
}

void Coordinator::End(bool stopped) {
  std::unique_lock lock(mutex_);
  ending_ = true;
  stopping_ = stopped;
  changed_.notify_all();
  const Clock::time_point since = Clock::now();
  while (!AllLeft(since)) {
    if (stopped && Clock::now() - since > options_.patience) break;
    changed_.wait_for(lock, kTick);
  }
  for (Server& server : servers_) server.orders.clear();
  Broadcast({.command = {.order = stopped ? Order::kStop : Order::kFinish}});
  changed_.wait_until(lock, Clock::now() + options_.patience, [&] {
    return std::all_of(servers_.begin() + 1, servers_.end(),
                       [](const Server& s) { return s.ticket == 0 || s.orders.empty(); });
  });
  running_ = false;
}

std::string Coordinator::lost_server() const {
  const std::lock_guard lock(mutex_);
  return "parameter server " + std::to_string(lost_);
}

void Coordinator::RequestStop() {
  const std::lock_guard lock(mutex_);
  if (!stopping_) stop_asked_ = Clock::now();
  stopping_ = true;
  changed_.notify_all();
}

int64_t Coordinator::version() const {
  const std::lock_guard lock(mutex_);
  return board_ ? board_->version() : 0;
}

// ---------------------------------------------------------------------------------- who comes and goes

Coordinator::Client& Coordinator::ClientOf(PeerRole role, int64_t index) {
  return role == PeerRole::kEvaluator ? evaluator_ : workers_[static_cast<size_t>(index)];
}

Coordinator::Client& Coordinator::Check(PeerRole role, int64_t index, int64_t ticket) {
  Client& client = ClientOf(role, index);
  if (client.ticket != ticket) throw ConnectionLost("another has taken this one's place");
  return client;
}

int64_t Coordinator::Join(PeerRole role, int64_t index) {
  const std::lock_guard lock(mutex_);
  const int64_t ticket = next_ticket_++;
  if (role == PeerRole::kServer) {
    Server& server = servers_[static_cast<size_t>(index)];
    if (running_ || server.ticket != 0) LoseServer(index);
    server.ticket = ticket;
    if (loading_ != nullptr) {
      server.orders.clear();
      server.orders.push_back(
          {.command = {.order = Order::kLoad, .era = era_, .version = board_->version()}, .load = loading_});
    }
  } else {
    Client& client = ClientOf(role, index);
    if (role == PeerRole::kWorker && board_) {
      for (const int64_t lease : board_->Forget(static_cast<int>(index))) Void(index, lease);
    }
    client.ticket = ticket;
    client.left = false;
    client.seen = Clock::now();
  }
  changed_.notify_all();
  return ticket;
}

void Coordinator::Part(PeerRole role, int64_t index, int64_t ticket) {
  const std::lock_guard lock(mutex_);
  if (role == PeerRole::kServer) {
    Server& server = servers_[static_cast<size_t>(index)];
    if (server.ticket != ticket) return;
    server.ticket = 0;
    LoseServer(index);
  } else {
    Client& client = ClientOf(role, index);
    if (client.ticket != ticket) return;
    client.ticket = 0;
    client.waiting = false;
    client.seen = Clock::now();
    if (role == PeerRole::kWorker && board_) {
      for (const int64_t lease : board_->Forget(static_cast<int>(index))) Void(index, lease);
    }
    if (Evaluates(role, index)) {
      holding_ = false;
      if (under_way_) owed_ = std::exchange(under_way_, std::nullopt);
    }
  }
  changed_.notify_all();
}

void Coordinator::LoseServer(int64_t index) {
  Server& server = servers_[static_cast<size_t>(index)];
  server.orders.clear();
  if (loading_ != nullptr) {  // it may come again until the era begins
    server.loaded = false;
    return;
  }
  if (ending_) {
    if (evaluation_is_due()) log::Warning("a parameter server was lost: the last evaluation is not made");
    owed_.reset();
    under_way_.reset();
    shard_.Void();
    return;
  }
  if (!running_) return;
  lost_ = index;
  shard_.Void();  // who waits for what will not come is sent away
}

// ------------------------------------------------------------------------------------------------ work

Work Coordinator::NextWork(PeerRole role, int64_t index, int64_t ticket, Deadline deadline) {
  std::unique_lock lock(mutex_);
  Client& client = Check(role, index, ticket);
  client.seen = Clock::now();
  if (role == PeerRole::kWorker && board_) {
    for (const int64_t lease : board_->Forget(static_cast<int>(index))) Void(index, lease);
  }
  if (Evaluates(role, index)) under_way_.reset();
  client.waiting = true;
  Work work = WorkFor(role, index);
  while (work.task == Task::kNothing && Clock::now() < deadline) {
    changed_.wait_until(lock, deadline);
    Check(role, index, ticket);
    work = WorkFor(role, index);
  }
  client.waiting = false;
  Tell(client, &work);
  return work;
}

Work Coordinator::WorkFor(PeerRole role, int64_t index) {
  if (stopping_) return {.task = Task::kStop};
  if (ending_ && !running_) return {.task = Task::kEnd};
  if (!running_ || lost_ >= 0) return {};
  if (Evaluates(role, index) && owed_) {
    under_way_ = std::exchange(owed_, std::nullopt);
    return {.task = Task::kEvaluate,
            .era = era_,
            .epoch = under_way_->epoch,
            .version = board_->version(),
            .validation = under_way_->validation,
            .test = under_way_->test};
  }
  if (ending_) return {.task = Task::kEnd};
  if (role != PeerRole::kWorker) return {};
  if (holding_ && Clock::now() - holding_since_ < options_.patience) return {};
  holding_ = false;
  const auto taken = board_->Take(static_cast<int>(index), Clock::now());
  if (!taken) return {};
  return {.task = Task::kBatch,
          .era = era_,
          .lease = taken->lease,
          .epoch = taken->epoch,
          .first = taken->samples.first,
          .count = taken->samples.count,
          .batch_samples = taken->batch_samples,
          .version = taken->version};
}

void Coordinator::Tell(Client& client, Work* work) {
  work->step = board_ ? board_->version() : 0;
  work->steps = steps_ - std::exchange(client.told_steps, steps_);
  work->samples = samples_ - std::exchange(client.told_samples, samples_);
  work->total_steps = board_ ? board_->total_batches() : 0;
  work->loss = loss_;
  if (work->task != Task::kBatch && work->task != Task::kEvaluate) work->epoch = epoch_;
}

bool Coordinator::Count(int64_t worker, int64_t ticket, const Commit& commit) {
  const std::lock_guard lock(mutex_);
  Check(PeerRole::kWorker, worker, ticket);
  if (!running_ || lost_ >= 0 || commit.era != era_) return false;
  WorkBoard::Outcome outcome;
  if (commit.complete && shard_.Holds(commit.lease)) {
    outcome = board_->Commit(static_cast<int>(worker), commit.lease,
                             {.loss_sum = commit.loss_sum,
                              .correct = commit.correct,
                              .penalty = commit.penalty,
                              .version = commit.version});
  }
  if (!outcome.counts) {
    ++dropped_;
    Void(worker, commit.lease);
  }
  if (outcome.update) Apply(*outcome.update);
  changed_.notify_all();
  return outcome.counts;
}

void Coordinator::Apply(const WorkBoard::Update& update) {
  // Each was there when it was committed, and stays until it is applied.
  if (!shard_.Apply(update.version, update.leases)) {
    lost_ = 0;
    return shard_.Void();
  }
  ++steps_;
  samples_ += update.batch.count;
  loss_ = update.loss;
  epoch_ = update.epoch;
  Broadcast({.command = {.order = Order::kApply,
                         .era = era_,
                         .version = update.version,
                         .leases = update.leases,
                         .epoch = update.epoch,
                         .samples = update.batch.count,
                         .total_steps = board_->total_batches(),
                         .loss = update.loss}});
  if (options_.on_update) {
    options_.on_update(
        {.update = update, .total = board_->total_batches(), .dropped = std::exchange(dropped_, 0)});
  }
  if (update.ends_epoch) OweEvaluation(update);
  const bool last = board_->done();
  if (options_.save_after && (last || options_.save_after(update.version, update.ends_epoch))) {
    snapshot_wanted_ = true;
    if (!snapshot_) StartSnapshot();
  }
}

void Coordinator::OweEvaluation(const WorkBoard::Update& update) {
  const bool last = board_->done();
  const Evaluation evaluation{
      .epoch = update.epoch, .validation = options_.validates, .test = options_.tests && last};
  if (!evaluation.validation && !evaluation.test) return;
  if (owed_) {
    log::Warning("the evaluation after epoch " + std::to_string(owed_->epoch + 1) +
                 " is left out: the next epoch is over before it began");
  }
  owed_ = evaluation;
  const Client& client = EvaluatingClient();
  const bool free = options_.evaluator ? client.waiting : client.ticket != 0 && !board_->has_lease(0);
  if (!options_.board.synchronous || !free) return;
  holding_ = true;
  holding_since_ = Clock::now();
}

void Coordinator::HasParameters(PeerRole role, int64_t index, int64_t ticket) {
  const std::lock_guard lock(mutex_);
  Check(role, index, ticket);
  if (Evaluates(role, index)) holding_ = false;
  changed_.notify_all();
}

void Coordinator::Leaves(PeerRole role, int64_t index, int64_t ticket) {
  const std::lock_guard lock(mutex_);
  Check(role, index, ticket).left = true;
  changed_.notify_all();
}

void Coordinator::Void(int64_t worker, int64_t lease) {
  shard_.Drop(worker, lease);
  Broadcast({.command = {.order = Order::kDrop, .era = era_, .leases = {lease}, .workers = {worker}}});
}

// ------------------------------------------------------------------------------------- other servers

void Coordinator::Broadcast(const Dispatch& dispatch) {
  for (size_t i = 1; i < servers_.size(); ++i) {
    if (servers_[i].ticket != 0) servers_[i].orders.push_back(dispatch);
  }
  changed_.notify_all();
}

Coordinator::Dispatch Coordinator::NextOrder(int64_t index, int64_t ticket, Deadline deadline) {
  std::unique_lock lock(mutex_);
  Server& server = servers_[static_cast<size_t>(index)];
  changed_.wait_until(lock, deadline, [&] { return server.ticket != ticket || !server.orders.empty(); });
  if (server.ticket != ticket) throw ConnectionLost("another has taken this one's place");
  return server.orders.empty() ? Dispatch{} : server.orders.front();
}

void Coordinator::Done(int64_t index, int64_t ticket, const Dispatch& dispatch) {
  const std::lock_guard lock(mutex_);
  Server& server = servers_[static_cast<size_t>(index)];
  if (server.ticket != ticket) throw ConnectionLost("another has taken this one's place");
  // What belongs to an era that is over was taken from the queue already.
  if (dispatch.command.order == Order::kNothing || server.orders.empty()) return;
  if (dispatch.command.era != server.orders.front().command.era) return;
  server.orders.pop_front();
  if (dispatch.command.order == Order::kLoad) server.loaded = true;
  if (dispatch.command.order == Order::kState) --collecting_;
  changed_.notify_all();
}

}  // namespace lockstep::trainer::parameter_server
