#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/contract/frame.h"
#include "common/event_loop.h"
#include "common/status.h"
#include "common/unique_fd.h"

namespace lockstep::rendezvous {

// One connection that carries frames, on the event loop. Both directions are bounded: a frame over its
// maximum closes the channel; so does a peer that lets more than kMaxUnsentBytes pile up, and while more than
// kPauseReadingBytes wait to be sent to it, nothing is read from it.
class Channel {
 public:
  static constexpr size_t kPauseReadingBytes = 1 << 20;
  static constexpr size_t kMaxUnsentBytes = 64 << 20;

  struct Handler {
    std::function<void(std::string_view body)> on_frame;
    // Once, and nothing after it. kUnavailable: the peer closed or vanished; kInvalidArgument: what it sent
    // makes no sense; kResourceExhausted: it doesn't read.
    std::function<void(const Status& why)> on_closed;
  };

  // `socket` is non-blocking and connected. kResourceExhausted if the loop cannot watch it.
  static Result<std::unique_ptr<Channel>> Create(EventLoop& loop, UniqueFd socket, size_t max_frame_bytes,
                                                 Handler handler);
  // Closes without a word to the handler. A handler may destroy its channel.
  ~Channel();

  void set_handler(Handler handler);
  void set_max_frame_bytes(size_t bytes) { received_.set_max_frame_bytes(bytes); }

  // Queues `frame` (header included) and sends what goes at once. Never calls the handler: a failure shows
  // later, as on_closed.
  void Send(std::string frame);

  // Sends what is queued and then says that no more will come. The peer's reaction is on_closed.
  void FinishSending();

  size_t unsent_bytes() const { return unsent_.size() - sent_; }
  int fd() const { return socket_.get(); }

 private:
  Channel(EventLoop& loop, UniqueFd socket, size_t max_frame_bytes, Handler handler);

  void OnReady(uint32_t events);
  void Read();
  void Flush();
  void UpdateEvents();
  void Close(const Status& why);

  EventLoop& loop_;
  UniqueFd socket_;
  std::shared_ptr<Handler> handler_;  // shared, so that one that destroys the channel outlives its own call
  contract::FrameBuffer received_;
  std::string unsent_;
  size_t sent_ = 0;  // of unsent_
  bool finishing_ = false;
  bool shut_ = false;
  bool broken_ = false;     // nothing can be sent any more
  bool overflown_ = false;  // about to be closed
  uint32_t events_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace lockstep::rendezvous
