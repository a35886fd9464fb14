#pragma once

#include <memory>

#include "common/status.h"
#include "launcher/http/key_value_server.h"
#include "launcher/pmix/store_link.h"

namespace lockstep::pmix {

// What Horovod's Gloo meets over (HOROVOD_GLOO_RENDEZVOUS_ADDR), for `ranks` of this machine: a port of the
// loopback address, behind which is the job's store. `link` outlives it.
Result<std::unique_ptr<http::KeyValueServer>> ServeHorovod(StoreLink& link, int ranks);

}  // namespace lockstep::pmix
