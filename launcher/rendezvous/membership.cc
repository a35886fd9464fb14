#include "launcher/rendezvous/membership.h"

#include <utility>

#include "common/contract/authentication.h"
#include "launcher/rendezvous/control_message.h"
#include "launcher/rendezvous/follower.h"
#include "launcher/rendezvous/leader.h"

namespace lockstep::rendezvous {

Result<std::unique_ptr<Membership>> Membership::Create(Options options) {
  if (options.replica < 0 || options.replica >= options.replicas) {
    return InvalidArgument("replica " + std::to_string(options.replica) +
                           " of a job whose replicas are 0 to " + std::to_string(options.replicas - 1));
  }
  if (options.job.empty() || options.job.size() > contract::kMaxJobBytes) {
    return InvalidArgument("job name \"" + options.job + "\": expected 1 to " +
                           std::to_string(contract::kMaxJobBytes) + " bytes");
  }
  if (options.instance.size() > kMaxInstanceBytes) {
    return InvalidArgument("rendezvous: the launcher's name \"" + options.instance + "\" is too long");
  }
  if (options.manifest_digest.size() > kMaxDigestBytes || options.advertised_host.size() > kMaxHostBytes) {
    return InvalidArgument("rendezvous: the digest of the manifest or the advertised host is too long");
  }
  return options.replica == 0 ? Leader::Create(std::move(options)) : Follower::Create(std::move(options));
}

}  // namespace lockstep::rendezvous
