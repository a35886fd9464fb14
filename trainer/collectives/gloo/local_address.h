#pragma once

#include <string>
#include <string_view>

namespace lockstep::trainer::collectives {

// The numeric address of this machine from which it reaches `peer` (HOST, HOST:PORT, [V6]:PORT); nothing is
// sent. Throws RendezvousFailed.
std::string LocalAddressTowards(std::string_view peer);

}  // namespace lockstep::trainer::collectives
