#include "launcher/operator/names.h"

namespace lockstep::op {

std::string ChildJobName(std::string_view job, std::string_view role, int attempt) {
  return ServiceName(job, role) + "-" + std::to_string(attempt);
}

std::string ServiceName(std::string_view job, std::string_view role) {
  return std::string(job) + "-" + std::string(role);
}

std::string GangName(std::string_view job, int attempt) {
  return std::string(job) + "-" + std::to_string(attempt);
}

std::string TokenSecretName(std::string_view job, std::string_view uid) {
  return std::string(job) + "-token-" + std::string(uid);
}

std::string PodDomain(std::string_view service, std::string_view space, std::string_view cluster_domain) {
  std::string domain(service);
  domain += ".";
  domain.append(space) += ".svc.";
  return domain.append(cluster_domain);
}

std::string PodHost(std::string_view child_job, int index, std::string_view service, std::string_view space,
                    std::string_view cluster_domain) {
  std::string host(child_job);
  host += "-" + std::to_string(index) + "." + PodDomain(service, space, cluster_domain) + ".";
  return host;
}

}  // namespace lockstep::op
