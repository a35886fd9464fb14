#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"

// trainer/checkpoint/ keeps the state of a training on disk:
//   checkpoint.h  (here) what is kept, and one file of it: versioned, every byte under a checksum;
//   parts.h       a checkpoint that several ranks write, each a file with some of the variables; directory.h
//   a folder of checkpoints: atomic writes, fencing of old generations, pruning, the newest whole one;
//   ledger.h      which samples were committed by which step, to show that nothing is lost and nothing
//   doubled.
// Parameters and optimizer slots are canonical: float32, whole (not sharded), in the order of the variables,
// so that another number of ranks, or another precision, resumes from the same file. Knows only common/.
namespace lockstep::trainer::checkpoint {

struct Variable {
  std::string name;
  std::vector<int64_t> shape;

  int64_t elements() const;
  friend bool operator==(const Variable&, const Variable&) = default;
};

// What a checkpoint must agree on with the job that resumes from it (but for the precision).
struct Signature {
  std::vector<Variable> variables;
  std::vector<Variable> state;     // what is kept beside them without being trained: moving statistics
  std::string optimizer;           // "Adam"
  std::vector<std::string> slots;  // {"m", "v"}: one value for each parameter
  std::string precision;           // "Float32"; another one may resume
  uint64_t seed = 0;               // the state of all randomness, with the position
  int64_t training_samples = 0;    // without those for validation: the order of samples depends on it

  int64_t elements() const;        // of all variables together
  int64_t state_elements() const;  // of all state together
};

// What differs so that a job with `job` cannot resume from `saved`, in words; empty when nothing does.
std::string Difference(const Signature& saved, const Signature& job);

// What a file is known by: its length, and the checksum of its header, which has those of all else.
struct Seal {
  uint64_t bytes = 0;
  uint32_t crc = 0;

  friend bool operator==(const Seal&, const Seal&) = default;
};

// All that a training needs to go on: an owned copy, so that it can be written by another thread while the
// training goes on. Reusing one saves the memory's first touch.
struct Snapshot {
  Signature signature;
  int64_t step = 0;   // done so far
  int64_t epoch = 0;  // where in the data the next batch is (data::Position)
  int64_t offset = 0;
  int64_t generation = 0;                 // that wrote it
  std::string metadata;                   // of the caller, small (at most 1 MiB): JSON, say. Kept as it is
  std::vector<float> parameters;          // [signature.elements()], in the order of the variables
  std::vector<std::vector<float>> slots;  // one for each signature.slots, same layout as the parameters
  std::vector<float> state;               // [signature.state_elements()], in the order of signature.state
  // Not empty: the values are in as many other files, and the three vectors above are empty.
  std::vector<Seal> parts;
};

// Writes `snapshot` to `fd` from its current offset on. Does not sync. The status names no file: the caller
// knows it. kInvalidArgument when the vectors do not fit the signature.
Result<Seal> WriteSnapshot(int fd, const Snapshot& snapshot);

// Reads what WriteSnapshot wrote, from the start of `fd`, a regular file. Anything that is not exactly that,
// down to one bit, is kInvalidArgument with the reason ("cut short: 812 of 3232064 bytes", "parameters: wrong
// checksum"); a version that this program does not know is kUnimplemented. Never asks for more memory than
// the file is large (and some KiB). `seal`, where given, gets that of the file.
Result<Snapshot> ReadSnapshot(int fd, Seal* seal = nullptr);

}  // namespace lockstep::trainer::checkpoint
