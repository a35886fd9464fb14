#include "launcher/http/client.h"

#include <httplib.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "common/lower_case.h"
#include "launcher/http/error_text.h"
#include "launcher/http/url.h"

namespace lockstep::http {

namespace {

using Clock = std::chrono::steady_clock;

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
  for (const auto& [name, value] : from.headers) response.headers[LowerCase(name)] = value;
  response.content_type = response.headers["content-type"];
  return response;
}

}  // namespace

Result<HttpResponse> Get(const std::string& url, Clock::time_point deadline, size_t max_bytes) {
  const std::string operation = "GET " + url;
  const std::optional<Url> parsed = ParseUrl(url);
  if (!parsed || parsed->tls)
    return InvalidArgument(operation + ": not a URL of the form http://HOST[:PORT]/PATH");
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
  return Unavailable(operation + ": " + ErrorText(result.error()));
}

}  // namespace lockstep::http
