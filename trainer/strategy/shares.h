#pragma once

#include <vector>

#include "trainer/model/model.h"

// Who brings what of a job's state when it is saved.
namespace lockstep::trainer::strategy {

// Of the whole model's variables and state (Strategy::Variables, StateVariables), by index, ascending.
struct Share {
  std::vector<size_t> variables;
  std::vector<size_t> state;
};

struct Shares {
  std::vector<Share> by_rank;  // empty for who brings nothing, as ranks behind the end do; never rank 0's
  int rank = 0;                // this one

  bool brings() const { return static_cast<size_t>(rank) < by_rank.size() && !mine().variables.empty(); }
  const Share& mine() const { return by_rank[static_cast<size_t>(rank)]; }
  // Who brings something, ascending.
  std::vector<int> ranks() const;
};

// Among at most `count`, of about as many floats each: the largest first, to whoever has the least so far.
// Each has a variable, and the first all the state.
std::vector<Share> DivideEvenly(const std::vector<NamedShape>& variables,
                                const std::vector<NamedShape>& state, int count);

// How many floats those are, or all.
size_t FloatsOf(const std::vector<NamedShape>& all, const std::vector<size_t>& which);
size_t FloatsOf(const std::vector<NamedShape>& all);

}  // namespace lockstep::trainer::strategy
