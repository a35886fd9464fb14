#include "common/contract/store_client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <utility>

#include "common/contract/authentication.h"
#include "common/contract/connect.h"
#include "common/contract/environment.h"
#include "common/contract/store_address.h"

namespace lockstep::contract {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{10};
constexpr milliseconds kLongestPause{1000};
constexpr milliseconds kAttemptLimit{5000};  // for one connection and its handshake
constexpr milliseconds kAnswerMargin{500};

Status InContext(const std::string& context, const Status& status) {
  return {status.code(), context + ": " + status.message()};
}

std::string Name(const StoreRequest& request) {
  std::string name;
  const size_t shown = std::min<size_t>(request.keys.size(), 8);
  for (size_t i = 0; i < shown; ++i) name += (i > 0 ? ", " : "") + request.keys[i];
  if (request.keys.size() > shown) name += " and " + std::to_string(request.keys.size() - shown) + " more";
  return (request.keys.size() == 1 ? "key " : "keys ") + name;
}

}  // namespace

StoreClient::StoreClient(UniqueFd socket, std::string address)
    : socket_(std::move(socket)), address_(std::move(address)) {}

StoreClient::~StoreClient() = default;

Result<std::unique_ptr<StoreClient>> StoreClient::Connect(const Options& options) {
  const std::string context = "rank " + std::to_string(options.rank) + ": store at " + options.address;
  std::minstd_rand random(std::random_device{}());
  milliseconds pause = kFirstPause;
  while (true) {
    Result<std::unique_ptr<StoreClient>> client = ConnectOnce(options);
    if (client.ok()) return client;
    const Status status = client.status();
    if (status.code() != StatusCode::kUnavailable) return InContext(context, status);
    // Half to all of the pause, so that ranks that were refused together don't come back together.
    const milliseconds wait(std::uniform_int_distribution<int64_t>(pause.count() / 2, pause.count())(random));
    if (Clock::now() + wait >= options.deadline) {
      return DeadlineExceeded(context + ": not reached in time; the last attempt: " + status.message());
    }
    std::this_thread::sleep_for(wait);
    pause = std::min(2 * pause, kLongestPause);
  }
}

Result<std::unique_ptr<StoreClient>> StoreClient::ConnectOnce(const Options& options) {
  const Deadline deadline = std::min(options.deadline, Clock::now() + kAttemptLimit);
  const Result<HostPort> target = ParseHostPort(options.address);
  if (!target.ok()) return target.status();
  const NameLookup lookup(*target);
  lookup.Wait(deadline);
  const Result<std::vector<SocketAddress>> addresses = lookup.Take();
  if (!addresses.ok()) return addresses.status();

  Status last;
  for (const SocketAddress& address : *addresses) {
    Result<UniqueFd> socket = ConnectTo(address, deadline);
    if (!socket.ok()) {
      last = socket.status();
      continue;
    }
    std::unique_ptr<StoreClient> client(new StoreClient(std::move(*socket), options.address));
    LOCKSTEP_RETURN_IF_ERROR(client->Handshake({.address = options.address,
                                                .token = options.token,
                                                .job = options.job,
                                                .generation = options.generation,
                                                .rank = options.rank,
                                                .store_id = options.store_id,
                                                .deadline = deadline}));
    return client;
  }
  return last;
}

Status StoreClient::Handshake(const Options& options) {
  ClientHandshake handshake(
      options.token,
      {.kind = PeerKind::kRank, .job = options.job, .generation = options.generation, .index = options.rank});
  LOCKSTEP_RETURN_IF_ERROR(SendAll(handshake.hello(), options.deadline));
  const Result<std::string> challenge = ReceiveFrame(options.deadline);
  if (!challenge.ok()) return challenge.status();
  const Result<std::string> answer = handshake.Answer(*challenge);
  if (!answer.ok()) return answer.status();
  if (!options.store_id.empty() && options.store_id != handshake.store_id()) {
    return PermissionDenied("another store of this job (" + handshake.store_id() +
                            ") than the one of this rank (" + options.store_id + ")");
  }
  received_.set_max_frame_bytes(kMaxStoreFrameBytes);
  LOCKSTEP_RETURN_IF_ERROR(SendAll(*answer, options.deadline));
  const Result<std::string> frame = ReceiveFrame(options.deadline);
  if (!frame.ok()) return frame.status();
  const Result<Welcome> welcome = DecodeWelcome(*frame);
  return welcome.ok() ? welcome->status : welcome.status();
}

Result<std::string> StoreClient::ReceiveFrame(Deadline deadline) {
  while (true) {
    const Result<std::optional<std::string_view>> frame = received_.Next();
    if (!frame.ok()) return FailedPrecondition("what listens there is no Lockstep rendezvous");
    if (frame->has_value()) return std::string(**frame);
    LOCKSTEP_RETURN_IF_ERROR(ReceiveSome(deadline));
    if (Clock::now() >= deadline) return Unavailable("no answer in the handshake");
  }
}

// kUnavailable: the stream is broken, in the middle of a frame perhaps.
Status StoreClient::SendAll(std::string_view frame, Deadline deadline) {
  while (!frame.empty()) {
    const ssize_t sent = ::send(socket_.get(), frame.data(), frame.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      frame.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      if (!PollUntil(socket_.get(), POLLOUT, deadline)) return Unavailable("nothing is taken any more");
    } else if (errno != EINTR) {
      return Unavailable(std::string("connection lost: ") + std::strerror(errno));
    }
  }
  return {};
}

// Returns with something received, at the deadline, or with kUnavailable.
Status StoreClient::ReceiveSome(Deadline deadline) {
  if (!PollUntil(socket_.get(), POLLIN, deadline)) return {};
  std::array<char, 64 * 1024> bytes;
  const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
  if (got > 0) {
    received_.Append({bytes.data(), static_cast<size_t>(got)});
    return {};
  }
  if (got == 0) return Unavailable("the store closed the connection");
  if (errno == EAGAIN || errno == EINTR) return {};
  return Unavailable(std::string("connection lost: ") + std::strerror(errno));
}

void StoreClient::Fail(Status status) {
  if (failed_.ok()) failed_ = std::move(status);
}

void StoreClient::Dispatch() {
  while (failed_.ok()) {
    const Result<std::optional<std::string_view>> frame = received_.Next();
    if (!frame.ok()) return Fail(InContext("store at " + address_, Unavailable(frame.status().message())));
    if (!frame->has_value()) return;
    Result<StoreReply> reply = DecodeReply(**frame);
    if (!reply.ok()) return Fail(InContext("store at " + address_, Unavailable(reply.status().message())));
    if (reply->id == 0) return Fail(reply->status);
    // One that came after its caller's deadline has no place any more.
    if (const auto call = calls_.find(reply->id); call != calls_.end()) call->second = std::move(*reply);
  }
}

Result<std::string> StoreClient::Call(StoreRequest request, Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (!failed_.ok()) return failed_;
  const auto late = [&] {
    return DeadlineExceeded("store at " + address_ + ": no answer for " + Name(request));
  };
  while (writing_) {
    if (Clock::now() >= deadline) return late();
    changed_.wait_until(lock, deadline);
    if (!failed_.ok()) return failed_;
  }
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
  if (left <= milliseconds::zero()) return late();
  const auto margin = std::min(kAnswerMargin, left / 4);
  request.timeout_ms = static_cast<uint32_t>(std::min<int64_t>((left - margin).count(), UINT32_MAX));
  do {
    request.id = next_id_++;
  } while (request.id == 0 || calls_.contains(request.id));
  calls_.emplace(request.id, std::nullopt);
  const std::string frame = EncodeRequest(request);

  writing_ = true;
  lock.unlock();
  const Status sent = SendAll(frame, deadline);
  lock.lock();
  writing_ = false;
  changed_.notify_all();
  // If that failed because the store has closed the connection, reading goes on until its last words, which
  // say why, or the end. Only a frame that is stuck half-way leaves nothing to hope for.

  while (true) {
    if (auto& reply = calls_.at(request.id)) {
      StoreReply answer = *std::move(reply);
      calls_.erase(request.id);
      if (!answer.status.ok()) return answer.status;
      return std::move(answer.value);
    }
    if (!failed_.ok() || Clock::now() >= deadline) {
      if (!sent.ok()) Fail(InContext("store at " + address_, sent));
      calls_.erase(request.id);
      return failed_.ok() ? late() : failed_;
    }
    if (reading_) {
      changed_.wait_until(lock, deadline);
      continue;
    }
    reading_ = true;
    lock.unlock();
    const Status received = ReceiveSome(deadline);
    lock.lock();
    reading_ = false;
    Dispatch();
    if (!received.ok()) Fail(InContext("store at " + address_, received));
    changed_.notify_all();
  }
}

Status StoreClient::Set(std::string_view key, std::string_view value, Deadline deadline) {
  StoreRequest request{.verb = FrameType::kSet, .keys = {std::string(key)}, .value = std::string(value)};
  LOCKSTEP_RETURN_IF_ERROR(CheckRequest(request));
  return Call(std::move(request), deadline).status();
}

Result<std::string> StoreClient::Get(std::string_view key, Deadline deadline) {
  StoreRequest request{.verb = FrameType::kGet, .keys = {std::string(key)}};
  LOCKSTEP_RETURN_IF_ERROR(CheckRequest(request));
  return Call(std::move(request), deadline);
}

Result<int64_t> StoreClient::Add(std::string_view key, int64_t amount, Deadline deadline) {
  StoreRequest request{.verb = FrameType::kAdd, .keys = {std::string(key)}, .amount = amount};
  LOCKSTEP_RETURN_IF_ERROR(CheckRequest(request));
  const Result<std::string> sum = Call(std::move(request), deadline);
  if (!sum.ok()) return sum.status();
  return AddToCounter(*sum, 0);
}

Status StoreClient::Wait(const std::vector<std::string>& keys, Deadline deadline) {
  StoreRequest request{.verb = FrameType::kWait, .keys = keys};
  LOCKSTEP_RETURN_IF_ERROR(CheckRequest(request));
  return Call(std::move(request), deadline).status();
}

}  // namespace lockstep::contract
