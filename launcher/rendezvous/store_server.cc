#include "launcher/rendezvous/store_server.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string>
#include <utility>

#include "common/contract/digest.h"
#include "launcher/rendezvous/listener.h"
#include "launcher/rendezvous/silence_watch.h"

namespace lockstep::rendezvous {

namespace {

using contract::FrameType;
using contract::StoreReply;
using contract::StoreRequest;
using std::chrono::milliseconds;

constexpr milliseconds kAcceptPause{100};      // when the process is out of descriptors
constexpr std::chrono::seconds kDismissal{1};  // to read the last frame in
constexpr int kAcceptsAtOnce = 64;
constexpr size_t kNamesShown = 8;

// "a, b and 3 more"
std::string Listed(const std::vector<std::string>& names) {
  std::string text;
  const size_t shown = std::min(names.size(), kNamesShown);
  for (size_t i = 0; i < shown; ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > shown) text += " and " + std::to_string(names.size() - shown) + " more";
  return text;
}

std::string Counted(const std::string& noun, const std::vector<std::string>& names) {
  return noun + (names.size() == 1 ? " " : "s ") + Listed(names);
}

}  // namespace

std::string StoreIdOf(const std::string& name) {
  std::string digits;
  std::copy_if(name.begin(), name.end(), std::back_inserter(digits), [](char c) { return c != '-'; });
  const auto is_digit = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
  if (digits.size() != 2 * contract::kStoreIdBytes || !std::all_of(digits.begin(), digits.end(), is_digit)) {
    digits = contract::Digest(name);
  }
  std::string id;
  for (size_t i = 0; i < contract::kStoreIdBytes; ++i) {
    id += static_cast<char>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
  }
  return id;
}

// A request whose keys are not all there yet.
struct StoreServer::Pending {
  StoreRequest request;
  StoreTable::WaiterId waiter = 0;
  EventLoop::TimerId timer = 0;
  Clock::time_point since;
};

struct StoreServer::Connection {
  enum class State { kAwaitHello, kAwaitAnswer, kRank, kDismissed };

  State state = State::kAwaitHello;
  std::unique_ptr<Channel> channel;
  contract::ServerHandshake handshake;
  EventLoop::TimerId timer = 0;  // of the handshake, or of the dismissal
  int rank = 0;
  std::map<uint32_t, Pending> pending;
};

StoreServer::StoreServer(Options options)
    : options_(std::move(options)),
      loop_(*options_.loop),
      store_id_(options_.name.empty() ? contract::RandomBytes(contract::kStoreIdBytes)
                                      : StoreIdOf(options_.name)),
      table_(options_.max_bytes) {}

StoreServer::~StoreServer() {
  loop_.Cancel(accept_again_);
  if (listener_) loop_.Unwatch(listener_.get());
  while (!connections_.empty()) Remove(connections_.begin()->first);
}

Result<std::unique_ptr<StoreServer>> StoreServer::Create(Options options) {
  std::unique_ptr<StoreServer> server(new StoreServer(std::move(options)));
  LOCKSTEP_RETURN_IF_ERROR(server->Listen());
  return server;
}

Status StoreServer::Listen() {
  Result<Listener> listener = ListenOn(options_.address);
  if (!listener.ok()) return listener.status();
  listener_ = std::move(listener->socket);
  host_ = listener->host;
  port_ = listener->port;
  return loop_.Watch(listener_.get(), EPOLLIN, [this](uint32_t) { Accept(); });
}

std::string StoreServer::store_id() const { return contract::ToHex(store_id_); }

void StoreServer::BeginGeneration(int64_t generation, int world_size) {
  EndGeneration("generation " + std::to_string(generation) + " begins");
  generation_ = generation;
  serving_ = true;
  rank_connections_.assign(static_cast<size_t>(world_size), 0);
  rank_seen_.assign(static_cast<size_t>(world_size), false);
}

void StoreServer::EndGeneration(const std::string& reason) {
  if (!serving_) return;
  serving_ = false;
  const std::string last_words = contract::EncodeReply(
      {.id = 0,
       .status = Aborted("store: generation " + std::to_string(generation_) + " is over: " + reason),
       .value = {}});
  std::vector<ConnectionId> ranks;
  for (const auto& [id, connection] : connections_) {
    if (connection->state == Connection::State::kRank) ranks.push_back(id);
  }
  for (const ConnectionId id : ranks) Dismiss(id, last_words);
  table_.Clear();
}

std::string StoreServer::AbsentRanks() const {
  std::vector<std::string> never;
  std::vector<std::string> left;
  for (size_t rank = 0; rank < rank_connections_.size(); ++rank) {
    if (rank_connections_[rank] > 0) continue;
    (rank_seen_[rank] ? left : never).push_back(std::to_string(rank));
  }
  std::string text;
  if (!never.empty()) {
    text = Counted("rank", never) + (never.size() == 1 ? " has" : " have") + " not connected to the store";
  }
  if (!left.empty()) {
    text += (text.empty() ? "" : "; ") + Counted("rank", left) + (left.size() == 1 ? " has" : " have") +
            " left it";
  }
  return text;
}

// --- strangers

void StoreServer::Accept() {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    Result<UniqueFd> socket = AcceptFrom(listener_.get());
    if (socket.ok() && !*socket) return;
    if (socket.ok()) {
      Admit(std::move(*socket));
      continue;
    }
    // Out of descriptors or memory: the connection stays in the kernel's queue, and asking again at once
    // would keep the loop busy with nothing else.
    ++statistics_.accept_pauses;
    (void)loop_.ChangeEvents(listener_.get(), 0);
    accept_again_ = loop_.After(kAcceptPause, [this] { (void)loop_.ChangeEvents(listener_.get(), EPOLLIN); });
    return;
  }
}

void StoreServer::Admit(UniqueFd socket) {
  ++statistics_.accepted;
  if (half_open_.size() >= options_.max_half_open ||
      (connections_.size() >= options_.max_connections && !half_open_.empty())) {
    Drop(half_open_.front(), statistics_.evicted);
  }
  if (connections_.size() >= options_.max_connections) {
    ++statistics_.over_limit;
    return;
  }
  const ConnectionId id = next_connection_++;
  Result<std::unique_ptr<Channel>> channel =
      Channel::Create(loop_, std::move(socket), contract::kMaxHandshakeFrameBytes,
                      {.on_frame = [this, id](std::string_view body) { OnHandshakeFrame(id, body); },
                       .on_closed = [this, id](const Status&) { Drop(id, statistics_.strangers); }});
  if (!channel.ok()) return;
  auto connection = std::make_unique<Connection>(
      Connection{.channel = std::move(*channel), .handshake = {options_.token, store_id_}, .pending = {}});
  connection->timer =
      loop_.After(options_.handshake_deadline, [this, id] { Drop(id, statistics_.timed_out); });
  connections_.emplace(id, std::move(connection));
  half_open_.push_back(id);
}

void StoreServer::OnHandshakeFrame(ConnectionId id, std::string_view body) {
  Connection& connection = *connections_.at(id);
  switch (connection.state) {
    case Connection::State::kAwaitHello: {
      Result<std::string> challenge = connection.handshake.Challenge(body);
      if (!challenge.ok()) return Drop(id, statistics_.strangers);
      connection.state = Connection::State::kAwaitAnswer;
      return connection.channel->Send(std::move(*challenge));
    }
    case Connection::State::kAwaitAnswer:
      if (!connection.handshake.Verify(body).ok()) return Drop(id, statistics_.strangers);
      return OnAuthenticated(id);
    case Connection::State::kRank:
    case Connection::State::kDismissed:
      return;
  }
}

void StoreServer::OnAuthenticated(ConnectionId id) {
  ++statistics_.authenticated;
  Connection& connection = *connections_.at(id);
  half_open_.remove(id);
  loop_.Cancel(std::exchange(connection.timer, 0));

  const contract::PeerIdentity& identity = connection.handshake.identity();
  Status status;
  if (identity.job != options_.job) {
    status =
        InvalidArgument("this is the rendezvous of job " + options_.job + ", not of job " + identity.job);
  } else if (identity.kind == contract::PeerKind::kRank) {
    status = CheckRank(identity);
  } else if (!options_.on_launcher) {
    status = FailedPrecondition("this rendezvous takes no further launchers");
  }
  if (!status.ok()) {
    ++statistics_.refused;
    return Dismiss(id, contract::EncodeWelcome({.status = status, .generation = generation_}));
  }

  if (identity.kind == contract::PeerKind::kLauncher) {
    const contract::PeerIdentity who = identity;
    std::unique_ptr<Channel> channel = std::move(connection.channel);
    connections_.erase(id);
    channel->set_handler({});
    return options_.on_launcher(std::move(channel), who);
  }
  connection.state = Connection::State::kRank;
  connection.rank = identity.index;
  ++rank_connections_[static_cast<size_t>(connection.rank)];
  rank_seen_[static_cast<size_t>(connection.rank)] = true;
  connection.channel->set_max_frame_bytes(contract::kMaxStoreFrameBytes);
  connection.channel->set_handler({.on_frame = [this, id](std::string_view body) { OnRequest(id, body); },
                                   .on_closed = [this, id](const Status&) { Remove(id); }});
  connection.channel->Send(contract::EncodeWelcome({.status = {}, .generation = generation_}));
}

Status StoreServer::CheckRank(const contract::PeerIdentity& identity) const {
  const std::string theirs = "generation " + std::to_string(identity.generation);
  if (identity.generation < generation_ || (identity.generation == generation_ && !serving_)) {
    return PermissionDenied(theirs + " is over; " +
                            (serving_ ? "generation " + std::to_string(generation_) + " is current"
                                      : std::string("the next has not begun")));
  }
  if (identity.generation > generation_) return Unavailable(theirs + " has not begun");
  if (identity.index < 0 || static_cast<size_t>(identity.index) >= rank_connections_.size()) {
    return InvalidArgument("rank " + std::to_string(identity.index) + " in a world of " +
                           std::to_string(rank_connections_.size()));
  }
  return {};
}

void StoreServer::Drop(ConnectionId id, int64_t& counter) {
  ++counter;
  Remove(id);
}

void StoreServer::Dismiss(ConnectionId id, std::string last_frame) {
  Connection& connection = *connections_.at(id);
  for (const auto& [request, pending] : connection.pending) {
    loop_.Cancel(pending.timer);
    table_.Forget(pending.waiter);
  }
  connection.pending.clear();
  if (connection.state == Connection::State::kRank) --rank_connections_[static_cast<size_t>(connection.rank)];
  connection.state = Connection::State::kDismissed;
  connection.channel->set_handler({.on_frame = {}, .on_closed = [this, id](const Status&) { Remove(id); }});
  connection.channel->Send(std::move(last_frame));
  connection.channel->FinishSending();
  connection.timer = loop_.After(kDismissal, [this, id] { Remove(id); });
}

void StoreServer::Remove(ConnectionId id) {
  const auto it = connections_.find(id);
  Connection& connection = *it->second;
  loop_.Cancel(connection.timer);
  for (const auto& [request, pending] : connection.pending) {
    loop_.Cancel(pending.timer);
    table_.Forget(pending.waiter);
  }
  if (connection.state == Connection::State::kRank) --rank_connections_[static_cast<size_t>(connection.rank)];
  half_open_.remove(id);
  connections_.erase(it);
}

// --- ranks

void StoreServer::OnRequest(ConnectionId id, std::string_view body) {
  Result<StoreRequest> decoded = contract::DecodeRequest(body);
  if (!decoded.ok()) return Drop(id, statistics_.malformed);
  StoreRequest& request = *decoded;
  StoreReply reply{.id = request.id, .status = {}, .value = {}};
  switch (request.verb) {
    case FrameType::kSet:
      reply.status = table_.Set(request.keys[0], request.value);
      break;
    case FrameType::kAdd: {
      const std::string* current = table_.Find(request.keys[0]);
      const Result<int64_t> sum = contract::AddToCounter(current == nullptr ? "" : *current, request.amount);
      if (sum.ok()) reply.value = std::to_string(*sum);
      reply.status = sum.ok() ? table_.Set(request.keys[0], reply.value) : sum.status();
      break;
    }
    default:
      if (!table_.Missing(request.keys).empty()) return Park(id, std::move(request));
      if (request.verb == FrameType::kGet) reply.value = *table_.Find(request.keys[0]);
  }
  Reply(id, std::move(reply));
}

void StoreServer::Park(ConnectionId id, StoreRequest request) {
  Connection& connection = *connections_.at(id);
  const uint32_t request_id = request.id;
  if (connection.pending.contains(request_id)) return Drop(id, statistics_.malformed);
  if (connection.pending.size() >= options_.max_pending_requests) {
    return Reply(
        id, {.id = request_id,
             .status = ResourceExhausted("store: more than " + std::to_string(options_.max_pending_requests) +
                                         " requests of one process wait at once"),
             .value = {}});
  }
  const Result<StoreTable::WaiterId> waiter =
      table_.Await(request.keys, [this, id, request_id] { OnPendingComplete(id, request_id); });
  if (!waiter.ok()) return Reply(id, {.id = request_id, .status = waiter.status(), .value = {}});
  const EventLoop::TimerId timer = loop_.After(milliseconds(request.timeout_ms),
                                               [this, id, request_id] { OnPendingTimeout(id, request_id); });
  connection.pending.emplace(
      request_id,
      Pending{.request = std::move(request), .waiter = *waiter, .timer = timer, .since = Clock::now()});
}

void StoreServer::OnPendingComplete(ConnectionId id, uint32_t request_id) {
  const auto node = connections_.at(id)->pending.extract(request_id);
  const Pending& pending = node.mapped();
  loop_.Cancel(pending.timer);
  StoreReply reply{.id = request_id, .status = {}, .value = {}};
  if (pending.request.verb == FrameType::kGet) reply.value = *table_.Find(pending.request.keys[0]);
  Reply(id, std::move(reply));
}

void StoreServer::OnPendingTimeout(ConnectionId id, uint32_t request_id) {
  const auto node = connections_.at(id)->pending.extract(request_id);
  const Pending& pending = node.mapped();
  const std::string absent = AbsentRanks();
  const std::string message = "store: waited " + InSeconds(Clock::now() - pending.since) + " for " +
                              Counted("key", table_.MissingOf(pending.waiter)) +
                              (absent.empty() ? "" : "; " + absent);
  table_.Forget(pending.waiter);
  Reply(id, {.id = request_id, .status = DeadlineExceeded(message), .value = {}});
}

void StoreServer::Reply(ConnectionId id, StoreReply reply) {
  connections_.at(id)->channel->Send(contract::EncodeReply(reply));
}

}  // namespace lockstep::rendezvous
