#pragma once

#include <chrono>
#include <mutex>
#include <string>

#include "launcher/kube/config.h"

namespace lockstep::kube {

// The bearer token of the moment. A file is read again every minute, since a pod's token is replaced in place
// long before it runs out. Safe from every thread.
class TokenSource {
 public:
  explicit TokenSource(const Config& config);

  // Empty: none, the certificate says who we are. When the file cannot be read the last token is used on;
  // the server says soon enough that it does not do.
  std::string Get();
  // The server refused `token`: whether the file has another one now.
  bool Renew(const std::string& token);

 private:
  void Read();

  const std::string file_;
  std::mutex mutex_;
  std::string token_;
  std::chrono::steady_clock::time_point read_at_;
};

}  // namespace lockstep::kube
