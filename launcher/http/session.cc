#include "launcher/http/session.h"

#include <httplib.h>
#include <openssl/err.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "common/lower_case.h"
#include "launcher/http/error_text.h"
#include "launcher/http/interrupter.h"
#include "launcher/http/tls_credentials.h"
#include "launcher/http/url.h"

namespace lockstep::http {

namespace {

using Clock = std::chrono::steady_clock;

// OpenSSL writes with write(), which raises SIGPIPE on a closed connection. It is raised in the writing
// thread, so that it can be held back here and taken away before anybody sees it.
class NoSigPipe {
 public:
  NoSigPipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigPipe() {
    const timespec now{};
    while (!was_pending_ && sigtimedwait(&pipe_, nullptr, &now) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigPipe(const NoSigPipe&) = delete;
  NoSigPipe& operator=(const NoSigPipe&) = delete;

 private:
  sigset_t pipe_{};
  sigset_t before_{};
  bool was_pending_ = false;
};

struct Connection {
  std::unique_ptr<httplib::ClientImpl> client;
  std::shared_ptr<SocketHandle> socket = std::make_shared<SocketHandle>();
  bool used = false;
  Clock::time_point idle_since;
};

// What one attempt came to.
struct Attempt {
  HttpResponse response;
  bool answered = false;  // status and headers are there
  bool complete = false;  // and the whole body
  bool too_long = false;
  bool refused = false;  // by `receive`
  httplib::Error error = httplib::Error::Success;
  std::string why;  // when it is not complete
};

// What cpp-httplib says, and OpenSSL's first reason ("certificate verify failed").
std::string Explain(httplib::Error error) {
  std::string why = ErrorText(error);
  if (const char* reason = ERR_reason_error_string(ERR_peek_error())) why += std::string(" (") + reason + ")";
  return why;
}

}  // namespace

class Session::Impl {
 public:
  Impl(SessionOptions options, Url url, std::shared_ptr<const TlsCredentials> credentials)
      : options_(std::move(options)), url_(std::move(url)), credentials_(std::move(credentials)) {
    if (url_.path == "/") url_.path.clear();
    while (url_.path.ends_with('/')) url_.path.pop_back();
  }
  ~Impl() {
    const NoSigPipe guard;
    idle_.clear();
  }

  Result<HttpResponse> Send(const SessionRequest& request) {
    const NoSigPipe guard;
    const std::string operation = request.method + " " + options_.url + request.target;
    while (true) {
      if (interrupter_.stopped()) return Aborted(operation + ": stopped");
      if (Clock::now() >= request.deadline) return DeadlineExceeded(operation + ": no time left");
      Connection connection = Take();
      if (!connection.client) return Internal(operation + ": no TLS context can be made");
      const bool used = connection.used;
      Attempt attempt = Try(connection, request);
      // A body that ends with its connection looks complete when the interrupter has ended that.
      const bool late = Clock::now() >= request.deadline;
      if (attempt.complete && !late && !interrupter_.stopped()) {
        PutBack(std::move(connection));
        return std::move(attempt.response);
      }
      if (interrupter_.stopped()) return Aborted(operation + ": stopped");
      if (attempt.refused) return std::move(attempt.response);
      if (attempt.too_long)
        return ResourceExhausted(operation + ": more than " + std::to_string(request.max_bytes) + " bytes");
      if (late || attempt.error == httplib::Error::ConnectionTimeout)
        return DeadlineExceeded(operation + ": timed out");
      // The server closed a kept connection, which is its right at any time.
      if (used && !attempt.answered && request.method == "GET") continue;
      return Unavailable(operation + ": " + attempt.why);
    }
  }

  void Stop() { interrupter_.Stop(); }
  const std::string& host() const { return url_.authority; }

 private:
  Connection Take() {
    {
      const std::lock_guard lock(mutex_);
      const Clock::time_point oldest = Clock::now() - options_.idle_time;
      idle_.erase(idle_.begin(), std::find_if(idle_.begin(), idle_.end(), [&](const Connection& connection) {
                    return connection.idle_since >= oldest;
                  }));
      if (!idle_.empty()) {
        Connection connection = std::move(idle_.back());
        idle_.pop_back();
        return connection;
      }
    }
    return Open();
  }

  void PutBack(Connection connection) {
    connection.used = true;
    connection.idle_since = Clock::now();
    const std::lock_guard lock(mutex_);
    if (idle_.size() < options_.max_idle) idle_.push_back(std::move(connection));
  }

  Connection Open() {
    Connection connection;
    if (url_.tls) {
      auto client = std::make_unique<httplib::SSLClient>(url_.host, url_.port);
      if (!client->is_valid() || !credentials_->Install(client->ssl_context())) return connection;
      // By OpenSSL instead, as TlsCredentials has told it.
      client->enable_server_certificate_verification(false);
      connection.client = std::move(client);
    } else {
      connection.client = std::make_unique<httplib::ClientImpl>(url_.host, url_.port);
    }
    connection.client->set_keep_alive(true);
    connection.client->set_tcp_nodelay(true);
    connection.client->set_decompress(false);
    connection.client->set_url_encode(false);
    connection.client->set_socket_options(
        [socket = connection.socket](socket_t fd) { socket->Adopt(static_cast<int>(fd)); });
    return connection;
  }

  Attempt Try(Connection& connection, const SessionRequest& request) {
    Attempt attempt;
    const auto left = std::chrono::duration_cast<std::chrono::microseconds>(request.deadline - Clock::now());
    connection.client->set_connection_timeout(std::max(left, std::chrono::microseconds(1)));
    // The interrupter is to be first.
    const std::chrono::microseconds later = left + std::chrono::seconds(1);
    const std::chrono::microseconds silence = request.silence;
    connection.client->set_read_timeout(silence.count() > 0 ? std::min(silence, later) : later);
    connection.client->set_write_timeout(later);

    httplib::Request sent;
    sent.method = request.method;
    sent.path = url_.path + request.target;
    sent.headers.emplace("Host", url_.authority);
    for (const auto& [name, value] : request.headers) sent.headers.emplace(name, value);
    sent.body = request.body;
    if (!request.content_type.empty()) sent.headers.emplace("Content-Type", request.content_type);
    HttpResponse& response = attempt.response;
    sent.response_handler = [&](const httplib::Response& head) {
      attempt.answered = true;
      response.status = head.status;
      for (const auto& [name, value] : head.headers) response.headers[LowerCase(name)] = value;
      response.content_type = response.headers["content-type"];
      return true;
    };
    sent.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) {
      if (request.receive && response.status >= 200 && response.status < 300) {
        attempt.refused = !request.receive({data, size});
        return !attempt.refused;
      }
      attempt.too_long = size > request.max_bytes - response.body.size();
      if (!attempt.too_long) response.body.append(data, size);
      return !attempt.too_long;
    };
    httplib::Response received;
    const Interrupter::Watch watch(&interrupter_, connection.socket, request.deadline);
    ERR_clear_error();
    attempt.complete = connection.client->send(sent, received, attempt.error);
    if (!attempt.complete) attempt.why = Explain(attempt.error);
    ERR_clear_error();
    if (attempt.complete && !attempt.answered) {  // 204, which has no body to announce
      response.status = received.status;
      for (const auto& [name, value] : received.headers) response.headers[LowerCase(name)] = value;
    }
    return attempt;
  }

  const SessionOptions options_;
  Url url_;
  const std::shared_ptr<const TlsCredentials> credentials_;
  std::mutex mutex_;
  std::vector<Connection> idle_;  // the last is the one used last
  Interrupter interrupter_;
};

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::Make(SessionOptions options) {
  std::optional<Url> url = ParseUrl(options.url);
  if (!url || url->path.find_first_of("?#") != std::string::npos)
    return InvalidArgument(options.url + ": not a URL of the form https://HOST[:PORT][/PATH]");
  std::shared_ptr<const TlsCredentials> credentials;
  if (url->tls) {
    auto made = TlsCredentials::Make(options.tls, url->host);
    if (!made.ok()) return InvalidArgument(options.url + ": " + made.status().message());
    credentials = *std::move(made);
  }
  while (options.url.ends_with('/')) options.url.pop_back();
  return std::unique_ptr<Session>(
      new Session(std::make_unique<Impl>(std::move(options), *std::move(url), std::move(credentials))));
}

Result<HttpResponse> Session::Send(const SessionRequest& request) { return impl_->Send(request); }
void Session::Stop() { impl_->Stop(); }
const std::string& Session::host() const { return impl_->host(); }

}  // namespace lockstep::http
