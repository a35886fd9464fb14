#pragma once

#include <optional>
#include <string>

#include "common/status.h"

// Where the API server is and who we are to it: a kubeconfig's context, or what a pod is given.
namespace lockstep::kube {

struct Config {
  std::string server;              // "https://10.0.0.1:6443", "http://127.0.0.1:8001" (a kubectl proxy)
  std::string server_name;         // the name the server's certificate must have; empty: the host in `server`
  std::string ca_pem;              // empty: the machine's certificate authorities
  bool skip_verification = false;  // the kubeconfig's insecure-skip-tls-verify

  std::string client_certificate_pem;  // with its chain; both or neither
  std::string client_key_pem;
  std::string token;       // at most one of these
  std::string token_file;  // read again every minute, and when it is refused

  std::string default_namespace = "default";
};

// The context `context` (empty: the current one) of a kubeconfig. The data of the certificates is read at
// once; paths in it are relative to its folder. kNotFound: no such file, context, cluster or user;
// kInvalidArgument: not a kubeconfig; kUnimplemented, by name: exec and auth-provider plugins, proxies, user
// names with passwords. No message holds a credential.
Result<Config> LoadKubeconfig(const std::string& path, const std::string& context = {});

// The service account of the pod this runs in: $KUBERNETES_SERVICE_HOST and _PORT, and the files token,
// ca.crt and namespace in `folder`. kFailedPrecondition outside of a pod.
Result<Config> InClusterConfig(const std::string& folder = "/var/run/secrets/kubernetes.io/serviceaccount");

// As kubectl finds it: `kubeconfig` when given, else $KUBECONFIG, which may be several files with colons
// between, else the pod's when in one, else ~/.kube/config. The message names all that was tried.
Result<Config> FindConfig(const std::string& kubeconfig = {}, const std::string& context = {});

}  // namespace lockstep::kube
