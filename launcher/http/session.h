#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"
#include "launcher/http/client.h"

namespace lockstep::http {

// Certificates and keys in PEM.
struct TlsOptions {
  std::string authorities;  // who may have signed the server's certificate; empty: the machine's own list
  std::string client_certificate;  // with its chain; both or neither
  std::string client_key;
  std::string server_name;         // the name or address in the server's certificate; empty: the URL's host
  bool skip_verification = false;  // talks to whoever answers
};

struct SessionOptions {
  std::string url;  // "https://HOST[:PORT]", "http://…"; HOST may be [v6]; a path is put before every target
  TlsOptions tls = {};
  size_t max_idle = 32;                         // connections kept open between requests
  std::chrono::milliseconds idle_time{60'000};  // for this long
};

struct SessionRequest {
  std::string method = "GET";
  std::string target;  // "/path?query", percent-encoded
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
  std::string content_type = {};                   // of the body
  std::chrono::steady_clock::time_point deadline;  // of the last byte
  std::chrono::milliseconds silence{0};            // longest time without a byte; 0: until the deadline
  size_t max_bytes = 1 << 20;                      // of the answer's body
  // Takes the body of a 2xx answer as it comes, unbounded, in place of HttpResponse::body. False ends the
  // request, which is no error.
  std::function<bool(std::string_view bytes)> receive = {};
};

// Requests to one server that is trusted, over connections that are kept open and used again. Safe from every
// thread; requests block and run side by side, each on its own connection.
class Session {
 public:
  // Connects to nothing. kInvalidArgument: the URL, or a certificate or key that is none. No message holds a
  // key.
  static Result<std::unique_ptr<Session>> Make(SessionOptions options);
  ~Session();  // no request is in progress
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Any HTTP status is a response. kUnavailable: nobody there, TLS failed, or the connection broke;
  // kDeadlineExceeded; kResourceExhausted: the body is longer than max_bytes; kAborted: Stop. A GET whose
  // kept connection turns out to be closed is sent again on a new one; nothing else is ever sent twice.
  // Resolving a host name is not bounded by the deadline.
  Result<HttpResponse> Send(const SessionRequest& request);

  // Ends what is in progress, and refuses what comes after.
  void Stop();

  const std::string& host() const;  // "10.0.0.1:6443", as in the URL

 private:
  class Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::http
