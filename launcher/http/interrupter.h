#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "common/unique_fd.h"

namespace lockstep::http {

// The socket of a connection as seen from another thread: a descriptor of its own, so that what is shut down
// is never somebody else's socket with the same number. Safe from every thread.
class SocketHandle {
 public:
  void Adopt(int fd);  // a duplicate of it, in place of the one before
  void ShutDown();

 private:
  std::mutex mutex_;
  UniqueFd fd_;
};

// Breaks requests off at their deadlines, since cpp-httplib bounds each read and not the sum of them. One
// thread for all of them. Safe from every thread.
class Interrupter {
 public:
  using Clock = std::chrono::steady_clock;

  Interrupter();
  ~Interrupter();  // no Watch is left
  Interrupter(const Interrupter&) = delete;
  Interrupter& operator=(const Interrupter&) = delete;

  // From construction to destruction the socket is shut down at the deadline or at Stop.
  class Watch {
   public:
    Watch(Interrupter* interrupter, std::shared_ptr<SocketHandle> socket, Clock::time_point deadline);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    Interrupter* interrupter_;
    std::multimap<Clock::time_point, std::shared_ptr<SocketHandle>>::iterator entry_;
  };

  // Breaks off what is watched, now and later.
  void Stop();
  bool stopped() const;

 private:
  void Run();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<Clock::time_point, std::shared_ptr<SocketHandle>> watched_;
  bool stopped_ = false;
  bool ended_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace lockstep::http
