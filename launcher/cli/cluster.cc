#include "launcher/cli/cluster.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "common/log.h"
#include "launcher/kube/config.h"

namespace lockstep::cli {

void AddCluster(CLI::App& command, Cluster& cluster) {
  command.add_option("-n,--namespace", cluster.space, "by default the context's");
  command.add_option("--context", cluster.context, "of the kubeconfig; by default its current one");
  command.add_option("--kubeconfig", cluster.kubeconfig, "a file; by default $KUBECONFIG or ~/.kube/config");
  command.add_option("--server", cluster.server,
                     "of a kubectl proxy, such as http://127.0.0.1:8001, in place of a kubeconfig");
}

Result<std::unique_ptr<kube::Client>> Connect(const Cluster& cluster) {
  log::Initialize(log::Level::kInfo, "lockstep");
  Result<kube::Config> config = cluster.server.empty() ? kube::FindConfig(cluster.kubeconfig, cluster.context)
                                                       : kube::Config{.server = cluster.server};
  if (!config.ok()) return config.status();
  if (!cluster.space.empty()) config->default_namespace = cluster.space;
  return kube::Client::Make(*std::move(config), {.requests_per_second = 0, .user_agent = "kubectl-lockstep"});
}

}  // namespace lockstep::cli
