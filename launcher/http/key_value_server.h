#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/status.h"

namespace lockstep::http {

// Keys and values over HTTP for programs of this machine: GET (404: not there yet), PUT and DELETE of
// /SCOPE/KEY, as Horovod's Gloo asks for them (horovod/common/gloo/http_store.cc). On the loopback address:
// the protocol knows no secret.
class KeyValueServer {
 public:
  struct Options {
    // Called on threads of the server, several at once. `get` may wait a little for the key; kNotFound: not
    // yet.
    std::function<Result<std::string>(const std::string& key)> get;
    std::function<Status(const std::string& key, const std::string& value)> put;
    int clients = 1;  // that may wait in `get` at once
  };

  // kUnavailable: no port is free.
  static Result<std::unique_ptr<KeyValueServer>> Start(Options options);
  ~KeyValueServer();
  KeyValueServer(const KeyValueServer&) = delete;
  KeyValueServer& operator=(const KeyValueServer&) = delete;

  // Of 127.0.0.1.
  int port() const;

 private:
  explicit KeyValueServer(Options options);

  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::http
