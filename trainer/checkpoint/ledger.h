#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"
#include "common/unique_fd.h"

// The ledger of (epoch, sample): an append-only file in which one rank notes every step it has done. It is
// off but in tests, where it shows that after any failures each sample of each epoch was committed exactly
// once.
namespace lockstep::trainer::checkpoint {

struct LedgerRecord {
  uint64_t writer = 0;  // one opening of the ledger; random
  int64_t generation = 0;
  int64_t step =
      0;  // done by this record: 1 is the first. With count 0: the step that the writer resumed from
  int64_t epoch = 0;
  int64_t first = 0;  // range of the epoch's order
  int64_t count = 0;  // 0: the writer starts

  friend bool operator==(const LedgerRecord&, const LedgerRecord&) = default;
};

class LedgerWriter {
 public:
  // Opens (or creates) the file and notes that this generation goes on after `resumed_step` (0: from
  // scratch).
  static Result<LedgerWriter> Open(const std::string& path, int64_t generation, int64_t resumed_step);
  // The same where others than the last writer may know of the step that is gone on after: if it is the next
  // one after what is noted, it is noted now. epoch, first and count are that step's.
  static Result<LedgerWriter> Open(const std::string& path, int64_t generation, int64_t resumed_step,
                                   int64_t epoch, int64_t first, int64_t count);

  // After the step is done. One write(2): whole, or not there.
  Status Append(int64_t step, int64_t epoch, int64_t first, int64_t count);

 private:
  LedgerWriter(UniqueFd fd, uint64_t writer, int64_t generation)
      : fd_(std::move(fd)), writer_(writer), generation_(generation) {}

  UniqueFd fd_;
  uint64_t writer_;
  int64_t generation_;
};

// All records in their order. A last one that is cut short is left out; a damaged one is an error.
Result<std::vector<LedgerRecord>> ReadLedger(const std::string& path);

struct LedgerSummary {
  int64_t steps = 0;        // committed
  int64_t repeated = 0;     // done, lost and done again by a later generation
  int64_t generations = 0;  // writers
};

// Whether the committed steps cover `epochs` epochs of `samples` samples, each sample of each epoch exactly
// once, in steps 1, 2, 3 … A writer that resumes from step s undoes what earlier writers did after s, and
// what an earlier writer notes after that does not count. The error names the first step or range that is
// wrong.
Result<LedgerSummary> CommittedOnce(const std::vector<LedgerRecord>& ledger, int64_t samples, int64_t epochs);

}  // namespace lockstep::trainer::checkpoint
