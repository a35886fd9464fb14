#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <string_view>

#include "common/unique_fd.h"

// A client of bytes, for requests that no well-behaved client would send. Every wait ends.
namespace lockstep::http {

class RawClient {
 public:
  static constexpr std::chrono::seconds kPatience{20};

  explicit RawClient(int port, const std::string& host = "127.0.0.1")
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    EXPECT_EQ(::inet_pton(AF_INET, host.c_str(), &address.sin_addr), 1);
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }

  // False when the server has closed the connection, or takes no more for kPatience.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      if (!Wait(POLLOUT, kPatience)) return false;
      const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno != EAGAIN) return false;
      if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  void HalfClose() { ::shutdown(fd_.get(), SHUT_WR); }

  // Everything until the server closes; `closed` says whether it did.
  std::string ReadToEnd() {
    return Read([](const std::string&) { return false; });
  }
  std::string ReadUntil(std::string_view needle) {
    return Read([&](const std::string& so_far) { return so_far.find(needle) != std::string::npos; });
  }
  bool closed() const { return closed_; }
  int fd() const { return fd_.get(); }

 private:
  bool Wait(short events, std::chrono::milliseconds limit) {
    pollfd waits{fd_.get(), events, 0};
    return ::poll(&waits, 1, static_cast<int>(limit.count())) > 0;
  }
  template <typename Enough>
  std::string Read(Enough enough) {
    std::string result;
    char buffer[4096];
    while (!enough(result) && Wait(POLLIN, kPatience)) {
      const ssize_t got = ::recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN)) {
        closed_ = true;
        break;
      }
      if (got > 0) result.append(buffer, static_cast<size_t>(got));
    }
    return result;
  }

  UniqueFd fd_;
  bool closed_ = false;
};

inline std::string GetRequest(std::string_view path) {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
}

// One whole exchange with a fresh connection.
inline std::string Exchange(int port, std::string_view request) {
  RawClient client(port);
  client.Send(request);
  return client.ReadToEnd();
}

inline bool IsStatus(const std::string& answer, int status) {
  return answer.starts_with("HTTP/1.1 " + std::to_string(status)) ||
         answer.starts_with("HTTP/1.0 " + std::to_string(status));
}

}  // namespace lockstep::http
