#pragma once

#include <cstdint>
#include <set>

namespace lockstep::trainer::cuda {

// Numbers in the data that a table does not have, which only the device comes to see. A kernel reports the
// first one; whoever asks the backend next, once the report is there, is told by BadData. One backend's, and
// like it of one thread at a time.
class NumberChecks {
 public:
  // Greater than any report.
  static constexpr uint64_t kNone = ~uint64_t{0};
  // The first position that is wrong in the upper half, the bits of its float in the lower.
  static constexpr uint64_t Report(uint32_t position, uint32_t bits) {
    return uint64_t{position} << 32 | bits;
  }

  struct Check {
    const volatile uint64_t* report = nullptr;  // in pinned memory
    int64_t positions = 1;                      // of a sample
    int64_t entries = 0;
  };
  // Is looked at from now on until Remove.
  void Add(const Check* check) { checks_.insert(check); }
  void Remove(const Check* check) { checks_.erase(check); }

  // Throws BadData, naming sample and number, if there is a report; from then on each time.
  void Look() const;

 private:
  std::set<const Check*> checks_;
};

}  // namespace lockstep::trainer::cuda
