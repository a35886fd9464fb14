#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/contract/store_client.h"
#include "common/event_loop.h"
#include "common/unique_fd.h"
#include "launcher/rendezvous/store_server.h"

namespace lockstep::rendezvous::testing {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

inline constexpr seconds kPatience{30};  // for what is to happen; only a failing test waits so long

inline Clock::time_point In(Clock::duration duration) { return Clock::now() + duration; }

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "rendezvous_test_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// A store server on a loop of its own thread.
class ServerThread {
 public:
  explicit ServerThread(const std::function<void(StoreServer::Options&)>& adjust = {}) {
    loop_ = std::move(*EventLoop::Create());
    StoreServer::Options options{.loop = loop_.get(), .token = token, .job = "mnist"};
    if (adjust) adjust(options);
    server_ = std::move(*StoreServer::Create(std::move(options)));
    wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    EXPECT_TRUE(loop_->Watch(wake_.get(), EPOLLIN, [this](uint32_t) { RunPosted(); }).ok());
    thread_ = std::thread([this] { loop_->Run(); });
  }
  ~ServerThread() {
    On([this](StoreServer&) { loop_->Stop(); });
    thread_.join();
    server_.reset();
  }

  // Runs `body` on the loop's thread and returns when it has run.
  void On(std::function<void(StoreServer&)> body) {
    std::packaged_task<void()> task([&] { body(*server_); });
    std::future<void> done = task.get_future();
    {
      const std::lock_guard lock(mutex_);
      posted_.push_back(std::move(task));
    }
    const uint64_t one = 1;
    EXPECT_EQ(::write(wake_.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
    done.get();
  }
  void Begin(int64_t generation, int world_size) {
    On([&](StoreServer& server) { server.BeginGeneration(generation, world_size); });
  }
  StoreServer::Statistics statistics() {
    StoreServer::Statistics result;
    On([&](StoreServer& server) { result = server.statistics(); });
    return result;
  }
  // Until `reached` holds of the statistics. Every change of them follows something that a client did.
  ::testing::AssertionResult Await(const std::function<bool(const StoreServer::Statistics&)>& reached) {
    const auto deadline = In(kPatience);
    while (Clock::now() < deadline) {
      if (reached(statistics())) return ::testing::AssertionSuccess();
      std::this_thread::yield();
    }
    return ::testing::AssertionFailure() << "the statistics never got there";
  }

  uint16_t port() const { return server_->port(); }  // constant
  std::string address() const { return "127.0.0.1:" + std::to_string(port()); }

  contract::StoreClient::Options ClientOptions(int rank, int64_t generation = 0) const {
    return {.address = address(),
            .token = token,
            .job = "mnist",
            .generation = generation,
            .rank = rank,
            .deadline = In(kPatience)};
  }
  std::unique_ptr<contract::StoreClient> Client(int rank, int64_t generation = 0) const {
    Result<std::unique_ptr<contract::StoreClient>> client =
        contract::StoreClient::Connect(ClientOptions(rank, generation));
    EXPECT_TRUE(client.ok()) << client.status().ToString();
    return client.ok() ? std::move(*client) : nullptr;
  }

  const contract::Token token = contract::Token::Random();

 private:
  void RunPosted() {
    uint64_t count = 0;
    EXPECT_GT(::read(wake_.get(), &count, sizeof count), 0);
    std::vector<std::packaged_task<void()>> posted;
    {
      const std::lock_guard lock(mutex_);
      posted.swap(posted_);
    }
    for (auto& task : posted) task();
  }

  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<StoreServer> server_;
  UniqueFd wake_;
  std::mutex mutex_;
  std::vector<std::packaged_task<void()>> posted_;
  std::thread thread_;
};

// A bare connection to a local port, as a stranger has it. Blocking, with kPatience.
class RawConnection {
 public:
  explicit RawConnection(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    const timeval patience{.tv_sec = kPatience.count(), .tv_usec = 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }

  bool connected() const { return connected_; }
  bool Send(std::string_view bytes) {
    return ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  // The body of the next frame; empty if the connection ends first.
  std::string ReceiveFrame() {
    while (true) {
      const auto frame = buffer_.Next();
      if (!frame.ok()) return {};
      if (frame->has_value()) return std::string(**frame);
      char bytes[4096];
      const ssize_t got = ::recv(fd_.get(), bytes, sizeof bytes, 0);
      if (got <= 0) return {};
      buffer_.Append({bytes, static_cast<size_t>(got)});
    }
  }
  // How many bytes come until the other end closes; -1 if it doesn't.
  ssize_t CountUntilClosed() {
    ssize_t total = 0;
    while (true) {
      char bytes[4096];
      const ssize_t got = ::recv(fd_.get(), bytes, sizeof bytes, 0);
      if (got == 0 || (got < 0 && errno == ECONNRESET)) return total;
      if (got < 0) return -1;
      total += got;
    }
  }

 private:
  UniqueFd fd_;
  bool connected_ = false;
  contract::FrameBuffer buffer_{1 << 21};
};

}  // namespace lockstep::rendezvous::testing
