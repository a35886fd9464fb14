#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/in_memory_store.h"
#include "trainer/collectives/gloo/gloo_communicator.h"
#include "trainer/collectives/local/local_communicator.h"
#include "trainer/collectives/local/local_group.h"

namespace lockstep::testing {

inline std::chrono::steady_clock::time_point In(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}
inline std::chrono::steady_clock::time_point Soon() { return In(std::chrono::seconds(30)); }

// Runs `rank(r)` for r < n, each in a thread; what each threw, "" for nothing.
inline std::vector<std::string> RunRanks(int n, const std::function<void(int)>& rank) {
  std::vector<std::string> thrown(static_cast<size_t>(n));
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r) {
    threads.emplace_back([&, r] {
      try {
        rank(r);
      } catch (const std::exception& error) {
        thrown[static_cast<size_t>(r)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

// What the ranks of one test share in place of a launcher.
struct Meeting {
  InMemoryStore store;
  trainer::collectives::InProcessSegments segments;

  std::unique_ptr<trainer::collectives::LocalGroup> Join(
      int rank, int size, std::chrono::milliseconds time = std::chrono::seconds(30)) {
    return trainer::collectives::LocalGroup::Join(
        {.rank = rank, .size = size, .store = &store, .deadline = In(time), .segments = &segments});
  }
};

enum class Transport { kLocal, kGloo };

// A communicator with what it stands on.
struct Rank {
  std::unique_ptr<trainer::collectives::LocalGroup> group;
  std::unique_ptr<trainer::collectives::Communicator> communicator;
  trainer::collectives::Communicator* operator->() const { return communicator.get(); }
};

inline Rank Connect(Transport transport, Meeting& meeting, int rank, int size) {
  Rank made;
  if (transport == Transport::kLocal) {
    made.group = meeting.Join(rank, size);
    made.communicator = trainer::collectives::MakeLocalCommunicator(*made.group, Soon());
  } else {
    made.communicator = trainer::collectives::ConnectGloo(
        {.rank = rank, .size = size, .store = &meeting.store, .reach = "127.0.0.1", .deadline = Soon()});
  }
  return made;
}

}  // namespace lockstep::testing
