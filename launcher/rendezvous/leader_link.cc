#include "launcher/rendezvous/leader_link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace lockstep::rendezvous {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{50};
constexpr milliseconds kLongestPause{1000};
constexpr milliseconds kFirstLookupPause{2};
constexpr milliseconds kLongestLookupPause{50};
constexpr std::chrono::seconds kAttemptLimit{5};
constexpr size_t kLeftStoresKept = 64;
constexpr std::chrono::seconds kTakenMargin{
    2};  // beyond the silence after which the leader loses a dead launcher

}  // namespace

LeaderLink::LeaderLink(Options options) : options_(std::move(options)), loop_(*options_.loop) {}

LeaderLink::~LeaderLink() { Reset(); }

void LeaderLink::Reset() {
  for (EventLoop::TimerId* timer : {&timer_, &attempt_timer_, &heartbeat_timer_}) {
    loop_.Cancel(std::exchange(*timer, 0));
  }
  silence_.reset();
  lookup_.reset();
  if (connecting_) loop_.Unwatch(connecting_.get());
  connecting_.reset();
  channel_.reset();
  handshake_.reset();
}

void LeaderLink::Start() {
  timer_ = loop_.After({}, [this] { Attempt(); });
}

void LeaderLink::Send(const ControlMessage& message) {
  if (joined()) channel_->Send(EncodeControl(message));
}

void LeaderLink::Leave(const ControlMessage& last) {
  std::unique_ptr<Channel> channel = joined() ? std::move(channel_) : nullptr;
  Close();
  if (channel == nullptr) return;
  channel->set_handler({});
  channel->Send(EncodeControl(last));
  channel->FinishSending();
  channel_ = std::move(channel);
}

void LeaderLink::Close() {
  Reset();
  state_ = State::kOver;
}

void LeaderLink::Attempt() {
  state_ = State::kLookingUp;
  attempt_timer_ = loop_.After(kAttemptLimit, [this] { Retry(Unavailable("no answer")); });
  // The address was checked when the membership was made.
  lookup_ = std::make_unique<contract::NameLookup>(*contract::ParseHostPort(options_.address));
  PollLookup(kFirstLookupPause);
}

void LeaderLink::PollLookup(milliseconds pause) {
  if (!lookup_->done()) {
    timer_ = loop_.After(pause, [this, pause] { PollLookup(std::min(2 * pause, kLongestLookupPause)); });
    return;
  }
  Result<std::vector<contract::SocketAddress>> found = lookup_->Take();
  if (!found.ok()) return Retry(found.status());
  addresses_.assign(found->rbegin(), found->rend());
  ConnectNext();
}

void LeaderLink::ConnectNext() {
  state_ = State::kConnecting;
  int error = EADDRNOTAVAIL;
  while (!addresses_.empty()) {
    const contract::SocketAddress address = addresses_.back();
    addresses_.pop_back();
    UniqueFd socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) {
      error = errno;
      continue;
    }
    if (::connect(socket.get(), address.get(), address.length) != 0 && errno != EINPROGRESS) {
      error = errno;
      continue;
    }
    // Writable at once if it is connected already.
    connecting_ = std::move(socket);
    const Status watched = loop_.Watch(connecting_.get(), EPOLLOUT, [this](uint32_t) { OnConnected(); });
    return watched.ok() ? void() : Retry(watched);
  }
  Retry(Unavailable(std::strerror(error)));
}

void LeaderLink::OnConnected() {
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(connecting_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error == 0 && contract::IsConnectedToItself(connecting_.get())) error = ECONNREFUSED;
  loop_.Unwatch(connecting_.get());
  if (error != 0) {
    connecting_.reset();
    return addresses_.empty() ? Retry(Unavailable(std::strerror(error))) : ConnectNext();
  }
  const int on = 1;
  ::setsockopt(connecting_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  Result<std::unique_ptr<Channel>> channel =
      Channel::Create(loop_, std::move(connecting_), contract::kMaxHandshakeFrameBytes,
                      {.on_frame = [this](std::string_view body) { OnFrame(body); },
                       .on_closed = [this](const Status& why) { Retry(why); }});
  if (!channel.ok()) return Retry(channel.status());
  channel_ = std::move(*channel);
  handshake_ = std::make_unique<contract::ClientHandshake>(
      options_.token, contract::PeerIdentity{.kind = contract::PeerKind::kLauncher,
                                             .job = options_.job,
                                             .generation = highest_generation_,
                                             .index = options_.replica});
  state_ = State::kAwaitChallenge;
  channel_->Send(handshake_->hello());
}

void LeaderLink::OnFrame(std::string_view body) {
  if (state_ < State::kAwaitJoined) return OnHandshakeFrame(body);
  if (silence_ != nullptr) silence_->Heard();
  const Result<ControlMessage> message = DecodeControl(body);
  if (!message.ok()) return Retry(message.status());
  if (const auto* joined = std::get_if<JoinedMessage>(&*message); joined != nullptr || !this->joined()) {
    return joined != nullptr && !this->joined() ? OnJoined(joined->status)
                                                : Retry(Unavailable("out of turn"));
  }
  if (!std::holds_alternative<HeartbeatMessage>(*message)) options_.handler.on_message(*message);
}

void LeaderLink::OnHandshakeFrame(std::string_view body) {
  if (state_ == State::kAwaitChallenge) {
    Result<std::string> answer = handshake_->Answer(body);
    // What answers there may be another program that has the port for a moment, until replica 0 is back.
    if (!answer.ok() && answer.status().code() == StatusCode::kFailedPrecondition && was_joined_) {
      return Retry(Unavailable(answer.status().message()));
    }
    if (!answer.ok()) return Refuse(answer.status());
    state_ = State::kAwaitWelcome;
    channel_->set_max_frame_bytes(kMaxControlFrameBytes);
    return channel_->Send(std::move(*answer));
  }
  const Result<contract::Welcome> welcome = contract::DecodeWelcome(body);
  if (!welcome.ok()) return Refuse(welcome.status());
  if (!welcome->status.ok()) return Refuse(welcome->status);
  if (IsLeftStore()) {
    // An old replica 0 that runs on beside the new one, under the same name. It knows by now which generation
    // there has been without it.
    last_error_ = "an old replica 0 answers there (store " + handshake_->store_id() + ")";
    channel_.reset();
    return addresses_.empty() ? Retry(Unavailable(last_error_)) : ConnectNext();
  }
  state_ = State::kAwaitJoined;
  channel_->Send(EncodeControl(options_.join));
}

bool LeaderLink::IsLeftStore() const {
  return std::find(left_stores_.begin(), left_stores_.end(), handshake_->store_id()) != left_stores_.end();
}

void LeaderLink::OnJoined(const Status& status) {
  if (status.code() == StatusCode::kUnavailable) {
    // Another launcher has this place. If that one is dead, its place is free as soon as the leader notices.
    const Clock::time_point now = Clock::now();
    if (!taken_since_) taken_since_ = now;
    if (now - *taken_since_ < options_.silence + kTakenMargin) return Retry(status);
    return Refuse(FailedPrecondition(status.message()));
  }
  if (!status.ok()) return Refuse(status);
  taken_since_.reset();
  was_joined_ = true;
  if (store_id_ != handshake_->store_id()) {
    if (!store_id_.empty()) left_stores_.push_back(store_id_);
    if (left_stores_.size() > kLeftStoresKept) left_stores_.erase(left_stores_.begin());
    store_id_ = handshake_->store_id();
  }
  pause_ = {};
  state_ = State::kJoined;
  loop_.Cancel(std::exchange(attempt_timer_, 0));
  silence_ = std::make_unique<SilenceWatch>(SilenceWatch::Options{
      .loop = &loop_, .heartbeat = options_.heartbeat, .silence = options_.silence, .on_silent = [this] {
        Retry(Unavailable("silent for " + InSeconds(options_.silence)));
      }});
  SendHeartbeats();
  options_.handler.on_joined(handshake_->store_id(), contract::PeerAddress(channel_->fd()).host());
}

void LeaderLink::SendHeartbeats() {
  Send(HeartbeatMessage{});
  heartbeat_timer_ = loop_.After(options_.heartbeat, [this] { SendHeartbeats(); });
}

void LeaderLink::Retry(const Status& why) {
  const bool was_member = joined();
  last_error_ = why.message();
  Reset();
  state_ = State::kPausing;
  pause_ = std::clamp(2 * pause_, kFirstPause, kLongestPause);
  const milliseconds wait(
      std::uniform_int_distribution<int64_t>(pause_.count() / 2, pause_.count())(random_));
  timer_ = loop_.After(wait, [this] { Attempt(); });
  if (was_member) options_.handler.on_lost(why.message());
}

void LeaderLink::Refuse(const Status& why) {
  last_error_ = why.message();
  Close();
  options_.handler.on_refused(why);
}

}  // namespace lockstep::rendezvous
