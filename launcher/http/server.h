#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"

// The launcher's HTTP: listening here (libmicrohttpd), asking in client.h (cpp-httplib); no other folder
// includes either library. What is served is small, read-only and public (metrics, health, status), so the
// server is built for one thing: that no client, however slow, large or numerous, can delay another's
// /healthz or grow the process.
//
//  - One thread, one epoll, and no wake-ups while nothing happens.
//  - GET and HEAD only; a request (line and headers) has 8 KiB and no body.
//  - A request has one deadline from the moment of its connection to the last byte of its answer, trickled or
//  not.
//  - Connections are capped. Beyond the cap the one that has been idle or unfinished for longest is closed,
//  so that
//    a crowd of slow clients pushes out its own members and a newcomer is still answered.
namespace lockstep::http {

struct Request {
  std::string method;                          // "GET" or "HEAD"
  std::string path;                            // as sent, without the query; percent signs are not decoded
  std::string query = {};                      // as sent, without the question mark
  std::map<std::string, std::string> headers;  // names in lower case; a repeated one is joined by ", "

  // Empty when absent. `lower_case_name` as in `headers`.
  std::string header(const std::string& lower_case_name) const;
  // The first of that name in the query, decoded; empty when absent.
  std::string parameter(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;  // left out on the wire for HEAD; its length is sent
  std::vector<std::pair<std::string, std::string>> headers = {};
  // Goes as gzip to clients that take it, if it is 200 and its body neither tiny nor huge.
  bool compresses = false;
};

// Bodies that are worth it, and do not hold up the other clients for long.
inline constexpr size_t kLeastCompressed = 1024;
inline constexpr size_t kMostCompressed = 4 << 20;

// Runs on the server's thread, one at a time, while every other client waits: it must be quick, must not
// block, and must itself lock what other threads change. An exception becomes a 500 without its text.
using Handler = std::function<Response(const Request&)>;

struct ServerOptions {
  std::string address =
      "127.0.0.1";  // numeric, IPv4 or IPv6; "::" takes both families; "localhost" is 127.0.0.1
  int port = 0;     // 0: a free one
  size_t max_request_bytes = 8 * 1024;
  std::chrono::milliseconds request_deadline{10'000};
  // How long a kept-alive connection may take until its next request is whole.
  std::chrono::milliseconds keep_alive{30'000};
  int max_connections = 256;
  int max_connections_per_address = 64;  // loopback addresses are exempt
};

// Start, Stop, Handle and the destructor belong to one thread.
class HttpServer {
 public:
  explicit HttpServer(ServerOptions options = {});
  ~HttpServer();  // stops
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Before Start. An unknown path is answered 404 with the list of the known ones.
  void Handle(std::string path, Handler handler);

  // Listens and serves until Stop. kInvalidArgument: not an address; otherwise the status of the bind, which
  // names address and port ("listen on 127.0.0.1:8080: Address already in use"). A failed Start may be
  // repeated.
  Status Start();
  // Closes all connections and joins the thread. Does nothing when not started.
  void Stop();

  // Once started.
  int port() const;
  std::string address() const;  // "127.0.0.1:8080", "[::1]:8080"

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::http
