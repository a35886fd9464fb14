// Serves PMIx to the ranks of one machine and generation (server.h), and Horovod's store if they are
// Horovod's, as a process of its own: a library that fails does not take the launcher with it. The job's map
// is in LOCKSTEP_PMIX_JOB, the job's store in the environment as the ranks have it.
//
// On standard output: {"environments": [{…}, …]}, a rank of this machine each, or {"error": "…"}; later
// "connected", when the first rank has come. Ends when its control pipe does, with the launcher.

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "common/contract/environment.h"
#include "common/contract/store_client.h"
#include "launcher/pmix/horovod_store.h"
#include "launcher/pmix/server.h"
#include "launcher/pmix/store_link.h"

namespace lockstep::pmix {
namespace {

constexpr auto kConnectLimit = std::chrono::seconds(60);

int Fail(const Status& status) {
  std::puts(nlohmann::json{{"error", status.message()}}.dump().c_str());
  return 1;
}

int Serve() {
  const char* const text = std::getenv(contract::kPmixJob);
  const Result<JobMap> map = ParseJobMap(text == nullptr ? "" : text);
  if (!map.ok()) return Fail(map.status());
  StoreLink store(
      [] { return contract::StoreFromEnvironment(std::chrono::steady_clock::now() + kConnectLimit); });
  const auto server = Server::Start(*map, store);
  if (!server.ok()) return Fail(server.status());
  const int ranks = map->machines[map->self];
  std::unique_ptr<http::KeyValueServer> horovod;
  if (map->horovod) {
    auto served = ServeHorovod(store, ranks);
    if (!served.ok()) return Fail(served.status());
    horovod = std::move(*served);
  }
  nlohmann::json environments = nlohmann::json::array();
  for (int i = 0; i < ranks; ++i) {
    auto environment = (*server)->EnvironmentOf(map->first_rank(map->self) + i);
    if (!environment.ok()) return Fail(environment.status());
    if (horovod) {
      (*environment)["HOROVOD_GLOO_RENDEZVOUS_ADDR"] = "127.0.0.1";
      (*environment)["HOROVOD_GLOO_RENDEZVOUS_PORT"] = std::to_string(horovod->port());
    }
    environments.push_back(*environment);
  }
  std::puts(nlohmann::json{{"environments", environments}}.dump().c_str());
  std::fflush(stdout);

  const char* const control = std::getenv(contract::kControlFd);
  char byte = 0;
  while (control != nullptr) {
    const ssize_t n = ::read(std::atoi(control), &byte, 1);
    if (n == 0 || (n < 0 && errno != EINTR)) break;
  }
  // With calls under way on the library's thread there is nobody to wait for.
  std::_Exit(0);
}

}  // namespace
}  // namespace lockstep::pmix

int main() { return lockstep::pmix::Serve(); }
