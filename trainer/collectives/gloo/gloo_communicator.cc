#include "trainer/collectives/gloo/gloo_communicator.h"

#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <net/if.h>
#include <signal.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "trainer/collectives/gloo/local_address.h"
#include "trainer/collectives/gloo/lost_peers.h"
#include "trainer/collectives/gloo/store_adapter.h"
#include "trainer/collectives/sum.h"
#include "trainer/error.h"

namespace lockstep::trainer::collectives {
namespace {

using Clock = std::chrono::steady_clock;
using gloo::transport::UnboundBuffer;
using std::chrono::milliseconds;

// Bytes up to which every rank sends everything to everyone: one round on the wire where the parts take two.
constexpr size_t kSmall = 4 * 1024;
// The same for two ranks, who send as many bytes either way; measured.
constexpr size_t kSmallForTwo = 2 * 1024 * 1024;

// Gloo reads zero and below as "no timeout" and "the default".
milliseconds Left(Deadline deadline) {
  return std::max(milliseconds(1), std::chrono::ceil<milliseconds>(deadline - Clock::now()));
}

void IgnoreBrokenPipes() {
  struct sigaction current {};
  if (::sigaction(SIGPIPE, nullptr, &current) == 0 && current.sa_handler == SIG_DFL)
    ::signal(SIGPIPE, SIG_IGN);
}

class GlooCommunicator final : public Communicator {
 public:
  explicit GlooCommunicator(const GlooOptions& options)
      : options_(options), sent_to_(options.size, 0), received_from_(options.size, 0) {
    if (options.size == 1) return;
    // Gloo finds this too, and leaks its list of interfaces with it.
    if (!options.interface.empty() && ::if_nametoindex(options.interface.c_str()) == 0) {
      throw RendezvousFailed("Gloo over the interface " + options.interface +
                             ": this machine has none of that name");
    }
    IgnoreBrokenPipes();
    try {
      gloo::transport::tcp::attr attributes;
      attributes.iface = options.interface;
      if (options.interface.empty()) attributes.hostname = LocalAddressTowards(options.reach);
      std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attributes);
      StoreAdapter store(*options.store, options.key, options.size, options.deadline);
      auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.size);
      context->setTimeout(Left(options.deadline));
      context->connectFullMesh(store, device);
      context_ = std::move(context);
      lost_peers_ = std::make_unique<LostPeers>(*context_, kNeverSent);
    } catch (const std::exception& error) {
      throw RendezvousFailed("connecting rank " + std::to_string(Global(options.rank)) + " with the other " +
                             std::to_string(options.size - 1) + " over Gloo: " + error.what());
    }
    watch_ = std::thread([this] { WatchPeers(); });
  }

  ~GlooCommunicator() override {
    if (watch_.joinable()) {
      {
        const std::lock_guard lock(mutex_);
        ends_ = true;
      }
      ending_.notify_one();
      watch_.join();
    }
    if (context_ != nullptr) Close();
  }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }

  void AllReduce(std::span<float> data, Deadline deadline) override { AllReduceAny(data, deadline); }
  void AllReduce(std::span<double> data, Deadline deadline) override { AllReduceAny(data, deadline); }

  void Reduce(std::span<float> data, int root, Deadline deadline) override {
    Exchange exchange(*this, "reduce", deadline);
    if (rank() != root) {
      exchange.Send(root, std::as_bytes(data));
      return exchange.Wait();
    }
    SumAll(exchange, data);
  }

  void Broadcast(std::span<std::byte> data, int root, Deadline deadline) override {
    Exchange exchange(*this, "broadcast", deadline);
    if (rank() != root) exchange.Recv(root, data);
    ForPeers([&](int peer) {
      if (rank() == root) exchange.Send(peer, data);
    });
    exchange.Wait();
  }

  void AllGather(std::span<const std::byte> mine, std::span<std::byte> all, Deadline deadline) override {
    if (mine.empty()) return;
    Exchange exchange(*this, "all-gather", deadline);
    const auto place = [&](int r) { return all.subspan(static_cast<size_t>(r) * mine.size(), mine.size()); };
    ForPeers([&](int peer) { exchange.Recv(peer, place(peer)); });
    ForPeers([&](int peer) { exchange.Send(peer, mine); });
    std::memmove(place(rank()).data(), mine.data(), mine.size());
    exchange.Wait();
  }

  void ReduceScatter(std::span<float> data, Deadline deadline) override {
    ScatterSums("reduce-scatter", data, deadline);
  }

  void AllGatherParts(std::span<float> data, Deadline deadline) override {
    GatherParts("all-gather", data, deadline);
  }

  void CopyPartsOn(std::span<float> data, Deadline deadline) override {
    if (size() == 1) return;
    Exchange exchange(*this, "copy", deadline);
    const auto part = [&](int r) {
      const Range range = PartOf(data.size(), r, size());
      return data.subspan(range.begin, range.size());
    };
    const int before = (rank() + size() - 1) % size();
    exchange.Recv(before, std::as_writable_bytes(part(before)));
    exchange.Send((rank() + 1) % size(), std::as_bytes(part(rank())));
    exchange.Wait();
  }

  void Send(std::span<const std::byte> data, int to, Deadline deadline) override {
    Exchange exchange(*this, "send", deadline, kPointToPoint | sent_to_[static_cast<size_t>(to)]++);
    exchange.Send(to, data);
    exchange.Wait();
  }

  void Recv(std::span<std::byte> data, int from, Deadline deadline) override {
    Exchange exchange(*this, "receive", deadline,
                      kPointToPoint | received_from_[static_cast<size_t>(from)]++);
    exchange.Recv(from, data);
    exchange.Wait();
  }

  void Barrier(Deadline deadline) override {
    std::byte mine{};
    std::vector<std::byte> all(static_cast<size_t>(size()));
    Exchange exchange(*this, "barrier", deadline);
    ForPeers([&](int peer) { exchange.Recv(peer, std::span(all).subspan(static_cast<size_t>(peer), 1)); });
    ForPeers([&](int peer) { exchange.Send(peer, {&mine, 1}); });
    exchange.Wait();
  }

  void Abort() noexcept override {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    if (pending_ != nullptr) pending_->AbortWaits();
  }

 private:
  // Messages of one collective call; the slots of Gloo that tell them from those of another. Point-to-point
  // calls are counted by pair, since the other ranks do not see them.
  static constexpr uint64_t kPointToPoint = uint64_t{1} << 63;
  static constexpr uint64_t kNeverSent = std::numeric_limits<uint64_t>::max();
  // How often it is looked whether a pending call waits for somebody who is lost.
  static constexpr milliseconds kLook{100};

  // Messages under way at once. Gloo keeps pointers to the data until Wait has returned.
  class Exchange {
   public:
    Exchange(GlooCommunicator& owner, const char* operation, Deadline deadline)
        : Exchange(owner, operation, deadline, owner.collectives_++) {}
    Exchange(GlooCommunicator& owner, const char* operation, Deadline deadline, uint64_t slot)
        : owner_(owner), operation_(operation), deadline_(deadline), start_(Clock::now()), slot_(slot) {
      const std::lock_guard lock(owner_.mutex_);
      owner_.pending_ = this;
    }
    ~Exchange() {
      const std::lock_guard lock(owner_.mutex_);
      owner_.pending_ = nullptr;
    }
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;

    void Send(int to, std::span<const std::byte> data) {
      Start(to, const_cast<std::byte*>(data.data()), data.size(), true);
    }
    void Recv(int from, std::span<std::byte> data) { Start(from, data.data(), data.size(), false); }

    // Until all messages are through. The first that fails is the one that is named.
    void Wait() {
      for (const auto& [buffer, peer, sends] : messages_) {
        Guarded(peer, [&, &buffer = buffer, &sends = sends] {
          const auto is_through = [&](milliseconds limit) {
            return sends ? buffer->waitSend(limit) : buffer->waitRecv(limit);
          };
          if (is_through(Left(deadline_))) return;
          if (owner_.IsAborted()) throw gloo::IoException("aborted");
          // Its peer is lost, but may have had the whole message, or sent it.
          try {
            if (is_through(milliseconds(1))) return;
          } catch (const std::exception&) {
            // Not in that time.
          }
          throw gloo::IoException("connection closed by peer");
        });
      }
      const std::lock_guard lock(owner_.mutex_);
      messages_.clear();
    }

    // With the owner's mutex held.
    void AbortWaits() noexcept {
      for (const auto& message : messages_) AbortWait(message);
    }
    void AbortWaitsForLost() noexcept {
      if (Clock::now() - start_ < kLook) return;
      for (const auto& message : messages_) {
        if (owner_.lost_peers_->Has(message.peer)) AbortWait(message);
      }
    }

   private:
    struct Message {
      std::unique_ptr<UnboundBuffer> buffer;
      int peer;
      bool sends;
    };

    static void AbortWait(const Message& message) {
      message.sends ? message.buffer->abortWaitSend() : message.buffer->abortWaitRecv();
    }

    void Start(int peer, std::byte* data, size_t size, bool sends) {
      if (size == 0) return;
      Guarded(peer, [&] {
        auto buffer = owner_.context_->createUnboundBuffer(data, size);
        UnboundBuffer& started = *buffer;
        {
          const std::lock_guard lock(owner_.mutex_);
          if (owner_.aborted_) throw gloo::IoException("aborted");
          messages_.push_back({std::move(buffer), peer, sends});
        }
        sends ? started.send(peer, slot_) : started.recv(peer, slot_);
      });
    }

    template <typename Call>
    void Guarded(int peer, const Call& call) {
      if (!owner_.dead_.empty()) throw CollectiveLost(std::string(operation_) + ": " + owner_.dead_);
      try {
        call();
      } catch (const std::exception& error) {
        owner_.Die(operation_, peer, deadline_ - start_, error.what());
      }
    }

    GlooCommunicator& owner_;
    const char* operation_;
    Deadline deadline_;
    Clock::time_point start_;
    uint64_t slot_;
    std::vector<Message> messages_;
  };

  template <typename Do>
  void ForPeers(const Do& action) const {
    // Beginning with the next one, so that not all send to the same rank first.
    for (int i = 1; i < size(); ++i) action((rank() + i) % size());
  }

  template <typename T>
  void AllReduceAny(std::span<T> data, Deadline deadline) {
    if (data.size_bytes() <= (size() == 2 ? kSmallForTwo : kSmall)) {
      Exchange exchange(*this, "all-reduce", deadline);
      ForPeers([&](int peer) { exchange.Send(peer, std::as_bytes(data)); });
      return SumAll(exchange, data);
    }
    ScatterSums("all-reduce", data, deadline);
    GatherParts("all-reduce", data, deadline);
  }

  // The part that each rank has, to all of them.
  template <typename T>
  void GatherParts(const char* operation, std::span<T> data, Deadline deadline) {
    Exchange exchange(*this, operation, deadline);
    const auto part = [&](int r) {
      const Range range = PartOf(data.size(), r, size());
      return data.subspan(range.begin, range.size());
    };
    ForPeers([&](int peer) { exchange.Recv(peer, std::as_writable_bytes(part(peer))); });
    ForPeers([&](int peer) { exchange.Send(peer, std::as_bytes(part(rank()))); });
    exchange.Wait();
  }

  // Every rank's part of `data` to the rank that sums it.
  template <typename T>
  void ScatterSums(const char* operation, std::span<T> data, Deadline deadline) {
    Exchange exchange(*this, operation, deadline);
    ForPeers([&](int peer) {
      const Range range = PartOf(data.size(), peer, size());
      exchange.Send(peer, std::as_bytes(data.subspan(range.begin, range.size())));
    });
    const Range mine = PartOf(data.size(), rank(), size());
    SumAll(exchange, data.subspan(mine.begin, mine.size()));
  }

  // Receives everybody's `data`, waits for the exchange, and sums.
  template <typename T>
  void SumAll(Exchange& exchange, std::span<T> data) {
    scratch_.resize(std::max(scratch_.size(), data.size_bytes() * static_cast<size_t>(size())));
    std::vector<const T*> from;
    for (int r = 0; r < size(); ++r) {
      T* place = reinterpret_cast<T*>(scratch_.data()) + static_cast<size_t>(r) * data.size();
      from.push_back(r == rank() ? data.data() : place);
      if (r != rank()) exchange.Recv(r, std::as_writable_bytes(std::span(place, data.size())));
    }
    exchange.Wait();
    SumInOrder(std::span<const T* const>(from), data.data(), data.size());
  }

  bool IsAborted() {
    const std::lock_guard lock(mutex_);
    return aborted_;
  }

  void WatchPeers() {
    std::unique_lock lock(mutex_);
    while (!ending_.wait_for(lock, kLook, [&] { return ends_; })) {
      if (pending_ != nullptr) pending_->AbortWaitsForLost();
    }
  }

  [[noreturn]] void Die(const char* operation, int peer, std::chrono::nanoseconds limit, const char* why) {
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.1f s", std::chrono::duration<double>(limit).count());
    dead_ = "rank " + std::to_string(Global(rank())) + " lost rank " + std::to_string(Global(peer)) +
            " over Gloo (deadline " + seconds + "): " + why;
    Close();
    throw CollectiveLost(std::string(operation) + ": " + dead_);
  }

  void Close() noexcept {
    try {
      context_->closeConnections();
    } catch (const std::exception&) {
      // Already closed, which is what is wanted.
    }
  }

  int Global(int r) const { return options_.first_rank + r * options_.rank_stride; }

  GlooOptions options_;
  std::shared_ptr<gloo::Context> context_;
  uint64_t collectives_ = 0;
  std::vector<uint64_t> sent_to_, received_from_;
  std::vector<std::byte> scratch_;
  std::string dead_;  // why, once it is

  std::mutex mutex_;  // guards the four below and the list of messages of the pending exchange
  bool aborted_ = false;
  Exchange* pending_ = nullptr;
  std::unique_ptr<LostPeers> lost_peers_;
  bool ends_ = false;
  std::condition_variable ending_;
  std::thread watch_;
};

}  // namespace

std::unique_ptr<Communicator> ConnectGloo(const GlooOptions& options) {
  return std::make_unique<GlooCommunicator>(options);
}

}  // namespace lockstep::trainer::collectives
