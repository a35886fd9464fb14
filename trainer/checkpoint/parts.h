#pragma once

#include <string>
#include <vector>

#include "common/status.h"
#include "trainer/checkpoint/checkpoint.h"

// A checkpoint that several write at the same time: each writes a snapshot of some of the variables and some
// of the state, and one then writes what names them all.
namespace lockstep::trainer::checkpoint {

// Of these variables and this state alone, by index.
Signature SignatureOf(const Signature& whole, const std::vector<size_t>& variables,
                      const std::vector<size_t>& state);

// Puts a whole snapshot together from its parts.
class Assembly {
 public:
  // `index`: what names the parts; has no values yet.
  explicit Assembly(Snapshot index);

  // kInvalidArgument for what is no part of this one: another step or optimizer, a variable that is not
  // there, of another shape, or there already.
  Status Add(const Snapshot& part);
  // kInvalidArgument, naming it, when a variable or a piece of state has not come.
  Result<Snapshot> Finish() &&;

 private:
  Snapshot whole_;
  std::vector<bool> has_variable_, has_state_;
};

}  // namespace lockstep::trainer::checkpoint
