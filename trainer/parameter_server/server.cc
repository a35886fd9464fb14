#include "trainer/parameter_server/server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/contract/authentication.h"
#include "common/log.h"

namespace lockstep::trainer::parameter_server {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kHandshakeTime{5};
// How long an answer may wait for something to happen before it says that nothing has.
constexpr std::chrono::seconds kLongPoll{1};

}  // namespace

std::string AddressKey(int64_t index) { return "ps/" + std::to_string(index) + "/address"; }

Server::Server(Options options, Shard& shard, Coordinator* coordinator)
    : options_(std::move(options)),
      shard_(shard),
      coordinator_(coordinator),
      raw_id_(contract::RandomBytes(contract::kStoreIdBytes)),
      listener_(Listen(options_.interface, options_.reach)),
      end_(::eventfd(0, EFD_CLOEXEC)),
      thread_([this] { AcceptLoop(); }) {}

Server::~Server() {
  const uint64_t one = 1;
  (void)!::write(end_.get(), &one, sizeof one);
  thread_.join();
  for (Peer& peer : peers_) peer.connection.Interrupt();
  for (Peer& peer : peers_) peer.thread.join();
}

std::string Server::id() const { return contract::ToHex(raw_id_); }

void Server::Publish(contract::Store& store, contract::Store::Deadline deadline) const {
  const Status told = store.Set(AddressKey(options_.index), address() + " " + id(), deadline);
  if (!told.ok()) throw RendezvousFailed("telling where this server is: " + told.message());
}

void Server::AcceptLoop() {
  pollfd ready[2] = {{.fd = listener_.socket.get(), .events = POLLIN, .revents = 0},
                     {.fd = end_.get(), .events = POLLIN, .revents = 0}};
  while (true) {
    const int count = ::poll(ready, 2, 1000);
    if (ready[1].revents != 0) return;
    Reap();
    if (count > 0 && ready[0].revents != 0) Accept();
  }
}

void Server::Accept() {
  UniqueFd socket(::accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    // Out of descriptors, say: what waits to be accepted would wake this thread again at once.
    ::poll(nullptr, 0, 10);
    return;
  }
  const auto strangers = std::count_if(peers_.begin(), peers_.end(),
                                       [](const Peer& peer) { return peer.stranger && !peer.ended; });
  if (static_cast<size_t>(strangers) >= options_.most_strangers) return;
  Peer& peer = peers_.emplace_back(std::move(socket));
  try {
    peer.thread = std::thread([this, &peer] {
      Serve(peer);
      peer.connection.Interrupt();
      peer.ended = true;
    });
  } catch (const std::system_error&) {
    peers_.pop_back();
  }
}

void Server::Reap() {
  for (auto it = peers_.begin(); it != peers_.end();) {
    if (!it->ended) {
      ++it;
      continue;
    }
    it->thread.join();
    it = peers_.erase(it);
  }
}

std::string Server::Refusal(const Attach& who) const {
  const bool known = (who.role == PeerRole::kWorker && who.index >= 0 && who.index < options_.workers) ||
                     (who.role == PeerRole::kEvaluator && who.index == 0) ||
                     (who.role == PeerRole::kServer && coordinator_ != nullptr && who.index > 0 &&
                      who.index < options_.servers);
  if (!known) return "nobody of that role and number is expected here";
  if (who.fingerprint != options_.fingerprint) {
    return "its model differs from the servers': another manifest, or another kind of processor";
  }
  return "";
}

void Server::Serve(Peer& peer) {
  int64_t ticket = 0;
  Attach who;
  Connection& connection = peer.connection;
  try {
    const Deadline deadline = Clock::now() + kHandshakeTime;
    if (!connection.Admit(raw_id_, options_.self, deadline)) return;
    who = connection.ReceiveAs<Attach>(deadline);
    const std::string refusal = Refusal(who);
    connection.Send(Encode(Attached{.refused = refusal}), deadline);
    if (!refusal.empty()) {
      log::Warning("parameter server: refused a process of the job: " + refusal);
      return;
    }
    peer.stranger = false;
    if (coordinator_ != nullptr) ticket = coordinator_->Join(who.role, who.index);
    if (who.role == PeerRole::kServer) {
      ServeServer(connection, who, ticket);
    } else {
      ServeClient(connection, who, ticket);
    }
  } catch (const ConnectionLost&) {
    // Whoever it was comes again, or is missed by the coordinator.
  } catch (const std::exception& error) {
    log::Error(std::string("parameter server: ") + error.what());
  }
  if (ticket != 0) coordinator_->Part(who.role, who.index, ticket);
}

void Server::ServeClient(Connection& connection, const Attach& who, int64_t ticket) {
  // Between its questions a worker computes, as long as that takes.
  while (true) Answer(connection, who, ticket, connection.Receive(Deadline::max()));
}

void Server::Answer(Connection& connection, const Attach& who, int64_t ticket, const std::string& question) {
  using contract::FrameType;
  const Deadline deadline = Clock::now() + options_.answer_time;
  const FrameType type = TypeOf(question);
  if (type == FrameType::kPull) return AnswerPull(connection, Connection::As<Pull>(question));
  if (type == FrameType::kStage && who.role == PeerRole::kWorker) {
    return AnswerStage(connection, who.index, Connection::As<Stage>(question));
  }
  if (coordinator_ == nullptr) throw ConnectionLost("a question for server 0");
  if (type == FrameType::kTake) {
    const Deadline nothing = Clock::now() + kLongPoll;
    return connection.Send(Encode(coordinator_->NextWork(who.role, who.index, ticket, nothing)), deadline);
  }
  if (type == FrameType::kCommit && who.role == PeerRole::kWorker) {
    const auto commit = Connection::As<Commit>(question);
    return connection.Send(Encode(Committed{.counts = coordinator_->Count(who.index, ticket, commit)}),
                           deadline);
  }
  if (type == FrameType::kHaveParameters) {
    coordinator_->HasParameters(who.role, who.index, ticket);
  } else if (type == FrameType::kLeave) {
    coordinator_->Leaves(who.role, who.index, ticket);
  } else {
    throw ConnectionLost("a question that makes no sense");
  }
  connection.Send(Encode(Noted{}), deadline);
}

void Server::AnswerPull(Connection& connection, const Pull& pull) {
  const Deadline deadline = Clock::now() + options_.answer_time;
  const Shard::Reading reading = shard_.Read(pull, deadline - options_.answer_time / 2);
  const std::string answer = Encode(Parameters{.result = reading.result, .version = reading.version});
  if (reading.copy == nullptr) return connection.Send(answer, deadline);
  const Piece all{0, shard_.floats()};
  connection.SendWith(answer, reading.copy->values.as<float>(), {&all, 1}, deadline);
}

void Server::AnswerStage(Connection& connection, int64_t worker, const Stage& stage) {
  const Deadline deadline = Clock::now() + options_.answer_time;
  Buffer room = shard_.Room(stage.era, deadline - options_.answer_time / 2);
  const bool there_is = room.data() != nullptr;
  // What is not wanted is read all the same, and forgotten: the answer comes behind it.
  if (!there_is) room = Buffer(HostAllocator(), static_cast<size_t>(shard_.floats()) * sizeof(float));
  bool kept = false;
  try {
    connection.ReceiveFloats({room.as<float>(), static_cast<size_t>(shard_.floats())}, deadline);
    if (there_is) kept = shard_.Stage(stage.era, worker, stage.lease, std::move(room), true);
  } catch (...) {
    if (there_is) shard_.Stage(stage.era, worker, stage.lease, std::move(room), false);
    throw;
  }
  connection.Send(Encode(Staged{.kept = kept}), deadline);
}

void Server::ServeServer(Connection& connection, const Attach& who, int64_t ticket) {
  while (true) {
    const Coordinator::Dispatch dispatch =
        coordinator_->NextOrder(who.index, ticket, Clock::now() + kLongPoll);
    const std::span<const Piece> pieces = coordinator_->PiecesOf(who.index);
    const Deadline deadline = Clock::now() + options_.answer_time;
    connection.Send(Encode(dispatch.command), deadline);
    if (dispatch.load != nullptr) {
      for (const Buffer& buffer : dispatch.load->buffers) {
        connection.SendWith({}, buffer.as<float>(), pieces, deadline);
      }
    }
    connection.ReceiveAs<Obeyed>(deadline);
    if (dispatch.fetch != nullptr) {
      for (const Buffer& buffer : dispatch.fetch->buffers) {
        connection.ReceiveFloats(buffer.as<float>(), pieces, deadline);
      }
    }
    coordinator_->Done(who.index, ticket, dispatch);
    if (dispatch.command.order == Order::kFinish || dispatch.command.order == Order::kStop) return;
  }
}

}  // namespace lockstep::trainer::parameter_server
