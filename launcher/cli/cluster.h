#pragma once

#include <memory>
#include <string>

#include "launcher/kube/client.h"

namespace CLI {
class App;
}

namespace lockstep::cli {

// Which cluster and whose rights in it: kubectl's own options.
struct Cluster {
  std::string kubeconfig;
  std::string context;
  std::string space;
  std::string server;  // a proxy that knows who we are; empty: as the kubeconfig says

  bool asked_for() const {
    return !(kubeconfig.empty() && context.empty() && space.empty() && server.empty());
  }
};

void AddCluster(CLI::App& command, Cluster& cluster);

Result<std::unique_ptr<kube::Client>> Connect(const Cluster& cluster);

}  // namespace lockstep::cli
