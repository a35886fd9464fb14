#pragma once

#include <memory>

#include "trainer/collectives/communicator.h"
#include "trainer/collectives/local/local_group.h"

namespace lockstep::trainer::collectives {

// The ranks of one machine, over memory that they share: data is staged there piece by piece, and each rank
// sums a part of each piece. Any memory of the caller's will do. Collective; the group outlives it and is not
// used for other things during its calls. Throws as LocalGroup::CreateSegment does.
std::unique_ptr<Communicator> MakeLocalCommunicator(LocalGroup& group, Deadline deadline);

}  // namespace lockstep::trainer::collectives
