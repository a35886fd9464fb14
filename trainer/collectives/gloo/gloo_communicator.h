#pragma once

#include <memory>
#include <string>

#include "common/contract/store.h"
#include "trainer/collectives/communicator.h"

namespace lockstep::trainer::collectives {

struct GlooOptions {
  int rank = 0;
  int size = 1;
  contract::Store* store = nullptr;  // used while connecting only
  std::string key = "gloo";          // prefix of the keys; one for each group of ranks
  // Which of this machine's addresses the others reach: that of `interface` if given, else the one from which
  // `reach` (HOST:PORT or HOST; the store's address) is reached.
  std::string interface;
  std::string reach;
  Deadline deadline;  // for connecting
  // Messages name global ranks: rank r of this group is first_rank + r * rank_stride.
  int first_rank = 0;
  int rank_stride = 1;
};

// Ranks on several machines, over TCP. Connects every rank with every other; a new generation makes a new
// one, over a store without old keys. Gloo carries the messages; the sums are ours (reduce-scatter and
// all-gather, each directly between all pairs), so that they are added in the order of the ranks.
//
// Makes this process ignore SIGPIPE, unless it handles it: Gloo writes to a lost peer's socket without
// MSG_NOSIGNAL.
//
// A killed peer is noticed at once (in the middle of a message within 0.2 s), a silent one (paused, cut off)
// at the deadline. Throws RendezvousFailed.
std::unique_ptr<Communicator> ConnectGloo(const GlooOptions& options);

}  // namespace lockstep::trainer::collectives
