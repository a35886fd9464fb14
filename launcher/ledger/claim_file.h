#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "common/status.h"
#include "launcher/ledger/claim.h"

namespace lockstep::ledger {

inline constexpr size_t kMaxClaimBytes = 4096;

// One JSON object, less the user: whose a claim is is known from the file's owner.
std::string WriteClaim(const Claim& claim);

// kInvalidArgument says what is wrong with the text; it never fails otherwise, whatever the text is. Unknown
// keys are passed over.
Result<Claim> ReadClaim(std::string_view text);

}  // namespace lockstep::ledger
