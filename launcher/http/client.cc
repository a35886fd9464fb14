#include "launcher/http/client.h"

#include <httplib.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

namespace lockstep::http {

namespace {

using Clock = std::chrono::steady_clock;

struct Url {
  std::string host;       // without brackets
  std::string authority;  // as written
  int port = 80;
  std::string path;
};

std::optional<Url> ParseUrl(std::string_view text) {
  constexpr std::string_view kScheme = "http://";
  if (!text.starts_with(kScheme)) return std::nullopt;
  text.remove_prefix(kScheme.size());
  const size_t slash = std::min(text.find('/'), text.size());
  Url url;
  url.authority = text.substr(0, slash);
  url.path = slash == text.size() ? "/" : text.substr(slash);
  std::string_view port;
  if (const size_t bracket = url.authority.find(']');
      url.authority.starts_with('[') && bracket != std::string::npos) {
    url.host = url.authority.substr(1, bracket - 1);
    port = std::string_view(url.authority).substr(bracket + 1);
  } else {
    const size_t colon = std::min(url.authority.find(':'), url.authority.size());
    url.host = url.authority.substr(0, colon);
    port = std::string_view(url.authority).substr(colon);
  }
  if (url.host.empty() ||
      std::any_of(text.begin(), text.end(), [](unsigned char c) { return c <= ' ' || c == 127; })) {
    return std::nullopt;
  }
  if (port.empty()) return url;
  const auto [end, error] = std::from_chars(port.data() + 1, port.data() + port.size(), url.port);
  if (port.front() != ':' || error != std::errc() || end != port.data() + port.size()) return std::nullopt;
  return url.port < 1 || url.port > 65535 ? std::nullopt : std::optional(url);
}

// cpp-httplib bounds each read, not the sum of them: at the deadline this closes the client's socket from
// outside.
class Watchdog {
 public:
  Watchdog(httplib::Client& client, Clock::time_point deadline)
      : thread_([this, &client, deadline] {
          std::unique_lock lock(mutex_);
          if (done_changed_.wait_until(lock, deadline, [this] { return done_; })) return;
          fired_ = true;
          // Again and again: a stop between connecting and sending has no effect.
          while (!done_) {
            lock.unlock();
            client.stop();
            lock.lock();
            done_changed_.wait_for(lock, std::chrono::milliseconds(20), [this] { return done_; });
          }
        }) {}
  ~Watchdog() { Finish(); }

  // Whether it had to act.
  bool Finish() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    done_changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    return fired_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_changed_;
  bool done_ = false;
  bool fired_ = false;
  std::thread thread_;  // last: it uses the others
};

HttpResponse Convert(const httplib::Response& from, std::string body) {
  HttpResponse response;
  response.status = from.status;
  response.body = std::move(body);
  for (const auto& [name, value] : from.headers) {
    std::string lower = name;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    response.headers[lower] = value;
  }
  response.content_type = response.headers["content-type"];
  return response;
}

}  // namespace

Result<HttpResponse> Get(const std::string& url, Clock::time_point deadline, size_t max_bytes) {
  const std::string operation = "GET " + url;
  const std::optional<Url> parsed = ParseUrl(url);
  if (!parsed) return InvalidArgument(operation + ": not a URL of the form http://HOST[:PORT]/PATH");
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(deadline - Clock::now());
  if (left.count() <= 0) return DeadlineExceeded(operation + ": no time left");

  httplib::Client client(parsed->host, parsed->port);
  client.set_connection_timeout(left);
  // The watchdog is to be first.
  client.set_read_timeout(left + std::chrono::seconds(1));
  client.set_write_timeout(left + std::chrono::seconds(1));
  client.set_keep_alive(false);
  client.set_decompress(false);

  std::string body;
  bool too_long = false;
  Watchdog watchdog(client, deadline);
  const httplib::Result result = client.Get(parsed->path, httplib::Headers{{"Host", parsed->authority}},
                                            [&](const char* data, size_t size) {
                                              too_long = size > max_bytes - body.size();
                                              if (!too_long) body.append(data, size);
                                              return !too_long;
                                            });
  const bool late = watchdog.Finish() || Clock::now() >= deadline;

  if (too_long) return ResourceExhausted(operation + ": more than " + std::to_string(max_bytes) + " bytes");
  if (result) return Convert(*result, std::move(body));
  if (late || result.error() == httplib::Error::ConnectionTimeout)
    return DeadlineExceeded(operation + ": timed out");
  return Unavailable(operation + ": " + httplib::to_string(result.error()));
}

}  // namespace lockstep::http
