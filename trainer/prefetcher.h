#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "trainer/data/sampler.h"

namespace lockstep::trainer {

// Prepares the batches that come next on a thread of its own, into slots of the caller's, while the step
// runs.
class Prefetcher {
 public:
  struct Options {
    size_t slots = 3;
    size_t kept = 1;  // slots that were taken last and are still the caller's; fewer than slots
    int64_t epochs = 0;
    // On the thread: fills a slot with the batch at a position.
    std::function<void(data::Position at, size_t slot)> prepare;
    // What follows a position. On both threads.
    std::function<data::Position(data::Position at)> next;
  };

  explicit Prefetcher(Options options);
  // Waits for the batch at hand; nothing else is begun.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The slot that has the batch at `at`; waits for it. Positions that do not follow one another are allowed
  // and begin anew; no slot is then the caller's any more. Rethrows what `prepare` threw for this batch; the
  // next Take then begins anew. Of one thread.
  size_t Take(data::Position at);

 private:
  void Work();

  const Options options_;
  std::mutex mutex_;  // guards what follows, but for the thread
  std::condition_variable changed_;
  std::optional<data::Position> expected_;  // of the next Take; none: begin anew
  data::Position position_;                 // to be prepared next
  size_t taken_ = 0, prepared_ = 0;         // since it began anew
  uint64_t beginning_ = 0;                  // how often it began
  std::exception_ptr failure_;              // of the batch at position_
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace lockstep::trainer
