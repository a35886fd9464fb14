#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/kube/client.h"

namespace lockstep::testing {

struct SeenRequest {
  std::string method;
  std::string target;  // path and query as sent
  std::string body;
  std::string content_type;
  std::string authorization;
};

struct ScriptedAnswer {
  int status = 200;
  std::string body = "{}";
  std::string retry_after = {};
  // Sent piece by piece as a chunked body when there are any; the connection stays open until the client
  // goes.
  std::vector<std::string> pieces = {};
  bool stays_open = false;
};

// An API server that answers as the test says: real HTTP, or TLS with certificates of its own. Stops in its
// destructor.
class ScriptedServer {
 public:
  using Script = std::function<ScriptedAnswer(const SeenRequest&, int number)>;  // numbers from 0

  explicit ScriptedServer(Script script, bool tls = false, bool wants_client_certificate = false);
  ~ScriptedServer();

  kube::Config config() const;  // the right one
  std::unique_ptr<kube::Client> Connect(kube::ClientOptions options = {}) const;
  std::vector<SeenRequest> requests() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// A certificate authority of the test's own, in PEM.
struct TestCertificates {
  std::string authority;
  std::string server;
  std::string server_key;
  std::string client;
  std::string client_key;
};
// For 127.0.0.1 and "api.test".
TestCertificates MakeCertificates();

}  // namespace lockstep::testing
