#include "launcher/rendezvous/channel.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace lockstep::rendezvous {

Channel::Channel(EventLoop& loop, UniqueFd socket, size_t max_frame_bytes, Handler handler)
    : loop_(loop),
      socket_(std::move(socket)),
      handler_(std::make_shared<Handler>(std::move(handler))),
      received_(max_frame_bytes) {}

Result<std::unique_ptr<Channel>> Channel::Create(EventLoop& loop, UniqueFd socket, size_t max_frame_bytes,
                                                 Handler handler) {
  std::unique_ptr<Channel> channel(new Channel(loop, std::move(socket), max_frame_bytes, std::move(handler)));
  channel->events_ = EPOLLIN;
  const Status watched =
      loop.Watch(channel->fd(), EPOLLIN, [raw = channel.get()](uint32_t events) { raw->OnReady(events); });
  if (!watched.ok()) return watched;
  return channel;
}

Channel::~Channel() {
  *alive_ = false;
  if (socket_) loop_.Unwatch(socket_.get());
}

void Channel::set_handler(Handler handler) { handler_ = std::make_shared<Handler>(std::move(handler)); }

void Channel::OnReady(uint32_t events) {
  const std::shared_ptr<bool> alive = alive_;
  if ((events & EPOLLOUT) != 0) Flush();
  if ((events_ & EPOLLIN) != 0) {
    Read();
  } else if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
    return Close(Unavailable("the connection broke"));
  }
  if (*alive && socket_) UpdateEvents();
}

void Channel::Read() {
  std::array<char, 64 * 1024> bytes;
  const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got < 0) return Close(Unavailable(std::string("the connection broke: ") + std::strerror(errno)));
  if (got == 0) return Close(Unavailable("the peer closed the connection"));

  received_.Append({bytes.data(), static_cast<size_t>(got)});
  const std::shared_ptr<bool> alive = alive_;
  while (true) {
    const Result<std::optional<std::string_view>> frame = received_.Next();
    if (!frame.ok()) return Close(frame.status());
    if (!frame->has_value()) return;
    const std::shared_ptr<Handler> handler = handler_;
    if (handler->on_frame) handler->on_frame(**frame);
    if (!*alive) return;
  }
}

void Channel::Send(std::string frame) {
  if (!socket_ || broken_ || overflown_ || finishing_) return;
  if (unsent_.empty()) {
    unsent_ = std::move(frame);
  } else {
    unsent_ += frame;
  }
  if (unsent_bytes() > kMaxUnsentBytes) {
    overflown_ = true;
    loop_.After({}, [this, alive = alive_] {
      if (*alive && socket_) Close(ResourceExhausted("the peer does not read what is sent to it"));
    });
    return;
  }
  Flush();
  UpdateEvents();
}

void Channel::FinishSending() {
  if (!socket_) return;
  finishing_ = true;
  Flush();
  UpdateEvents();
}

void Channel::Flush() {
  while (!broken_ && unsent_bytes() > 0) {
    const ssize_t sent = ::send(socket_.get(), unsent_.data() + sent_, unsent_bytes(), MSG_NOSIGNAL);
    if (sent >= 0) {
      sent_ += static_cast<size_t>(sent);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      // The peer's last words may still be there to be read; the loop comes to the end of them by itself.
      broken_ = true;
    }
  }
  if (broken_ || unsent_bytes() == 0) {
    unsent_ = {};
    sent_ = 0;
    if (finishing_ && !shut_) {
      shut_ = true;
      ::shutdown(socket_.get(), SHUT_WR);
    }
  } else if (sent_ > kPauseReadingBytes) {
    unsent_.erase(0, std::exchange(sent_, 0));
  }
}

void Channel::UpdateEvents() {
  const uint32_t wanted = (unsent_bytes() > kPauseReadingBytes ? 0u : uint32_t{EPOLLIN}) |
                          (unsent_bytes() > 0 ? uint32_t{EPOLLOUT} : 0u);
  if (wanted == events_) return;
  events_ = wanted;
  (void)loop_.ChangeEvents(socket_.get(), wanted);  // of a descriptor that is watched: it cannot fail
}

void Channel::Close(const Status& why) {
  loop_.Unwatch(socket_.get());
  socket_.reset();
  const std::shared_ptr<Handler> handler = handler_;
  if (handler->on_closed) handler->on_closed(why);
}

}  // namespace lockstep::rendezvous
