#include "launcher/operator/names.h"

namespace lockstep::op {

std::string ChildJobName(std::string_view job, std::string_view role, int attempt) {
  return ServiceName(job, role) + "-" + std::to_string(attempt);
}

std::string ServiceName(std::string_view job, std::string_view role) {
  return std::string(job) + "-" + std::string(role);
}

std::string TokenSecretName(std::string_view job, std::string_view uid) {
  return std::string(job) + "-token-" + std::string(uid);
}

std::string PodHost(std::string_view child_job, int index, std::string_view service, std::string_view space,
                    std::string_view cluster_domain) {
  std::string host(child_job);
  host += "-" + std::to_string(index) + ".";
  host.append(service) += ".";
  host.append(space) += ".svc.";
  host.append(cluster_domain) += ".";
  return host;
}

}  // namespace lockstep::op
