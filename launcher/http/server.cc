#include "launcher/http/server.h"

#include <microhttpd.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>

#include "common/log.h"
#include "common/lower_case.h"
#include "common/unique_fd.h"
#include "launcher/http/accept.h"
#include "launcher/http/gzip.h"
#include "launcher/http/listen_socket.h"

namespace lockstep::http {

namespace {

using Clock = std::chrono::steady_clock;

// What libmicrohttpd needs beside the request itself: its parsed form, and the answer's headers.
constexpr size_t kParsingBytes = 8 * 1024;
// Connections that are cut but not yet closed; libmicrohttpd closes them in its next round.
constexpr int kClosingConnections = 64;

struct Connection {
  int fd = -1;  // libmicrohttpd's
  std::string host;
  bool loopback = false;
  Clock::time_point idle_since;  // accepted, or the last answer's end
  Clock::time_point deadline;    // of the request that is under way or awaited
  bool cut = false;
  // Of the request under way.
  std::string uri;
  bool headers_seen = false;
};

MHD_Result CollectHeader(void* context, MHD_ValueKind, const char* name, const char* value) {
  auto& headers = *static_cast<std::map<std::string, std::string>*>(context);
  const std::string text = value == nullptr ? "" : value;
  const auto [it, inserted] = headers.try_emplace(LowerCase(name), text);
  if (!inserted) it->second += ", " + text;
  return MHD_YES;
}

// "/path?query" of that, or of "http://host/path?query" (RFC 9112, 3.2).
std::string_view TargetOf(std::string_view uri) {
  if (!uri.starts_with("http://")) return uri;
  uri.remove_prefix(7);
  uri.remove_prefix(std::min(uri.find('/'), uri.size()));
  return uri.empty() ? "/" : uri;
}

std::string PathOf(std::string_view uri) {
  const std::string_view target = TargetOf(uri);
  return std::string(target.substr(0, target.find('?')));
}

std::string QueryOf(std::string_view uri) {
  const std::string_view target = TargetOf(uri);
  const size_t mark = target.find('?');
  return std::string(mark == std::string_view::npos ? "" : target.substr(mark + 1));
}

// As a form encodes it; a percent sign without two digits stands for itself.
std::string Decoded(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      result += static_cast<char>(byte);
      i += 2;
    } else {
      result += text[i] == '+' ? ' ' : text[i];
    }
  }
  return result;
}

bool HasBody(const Request& request) {
  const std::string length = request.header("content-length");
  return request.headers.contains("transfer-encoding") || length.find_first_not_of('0') != std::string::npos;
}

void Compress(const Request& request, Response& response) {
  response.headers.emplace_back("Vary", "Accept-Encoding");
  const size_t size = response.body.size();
  if (response.status != 200 || size < kLeastCompressed || size > kMostCompressed) return;
  if (!AcceptsGzip(request.header("accept-encoding"))) return;
  std::optional<std::string> compressed = Gzip(response.body);
  if (!compressed) return;
  response.body = std::move(*compressed);
  response.headers.emplace_back("Content-Encoding", "gzip");
}

Response Plain(int status, std::string body) { return {.status = status, .body = std::move(body) + "\n"}; }

}  // namespace

std::string Request::header(const std::string& lower_case_name) const {
  const auto it = headers.find(lower_case_name);
  return it == headers.end() ? "" : it->second;
}

std::string Request::parameter(std::string_view name) const {
  for (std::string_view rest = query; !rest.empty();) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
    const size_t equals = pair.find('=');
    if (Decoded(pair.substr(0, equals)) != name) continue;
    return equals == std::string_view::npos ? "" : Decoded(pair.substr(equals + 1));
  }
  return "";
}

// libmicrohttpd is driven from a thread of our own ("external polling"), so that its callbacks and the
// deadlines that it does not have are one thread's business: nothing here but `wake_` is shared.
class HttpServer::Impl {
 public:
  explicit Impl(ServerOptions options) : options_(std::move(options)) {}

  Status Start();
  void Stop();

  ServerOptions options_;
  std::map<std::string, Handler> handlers_;
  int port_ = 0;
  std::string address_;

 private:
  static void OnConnection(void* self, MHD_Connection* connection, void** context,
                           MHD_ConnectionNotificationCode code);
  static void* OnUri(void* self, const char* uri, MHD_Connection* connection);
  static void OnCompleted(void* self, MHD_Connection* connection, void** context,
                          MHD_RequestTerminationCode code);
  static MHD_Result OnRequest(void* self, MHD_Connection* connection, const char* url, const char* method,
                              const char* version, const char* data, size_t* data_size, void** context);
  static Connection& ContextOf(MHD_Connection* connection) {
    const auto* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return *static_cast<Connection*>(info->socket_context);
  }

  void Serve();
  int PollTimeout() const;
  void CutOverdue();
  void Admit(Connection& newcomer);
  void CutLongestIdle(const Connection& newcomer, bool same_host);
  static void Cut(Connection& connection);
  Response Answer(const Request& request) const;
  static MHD_Result Queue(MHD_Connection* connection, const Response& response, bool close);

  MHD_Daemon* daemon_ = nullptr;
  int epoll_ = -1;  // libmicrohttpd's
  UniqueFd wake_;
  std::thread thread_;
  std::map<Connection*, std::unique_ptr<Connection>> connections_;
};

Status HttpServer::Impl::Start() {
  Result<ListenSocket> listening = Listen(options_.address, options_.port);
  if (!listening.ok()) return listening.status();
  wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) return Status::FromErrno(errno, "eventfd");

  // The listening socket is libmicrohttpd's from here on, whether it starts or not.
  daemon_ = MHD_start_daemon(
      MHD_USE_EPOLL, 0, nullptr, nullptr, &OnRequest, this,                                                //
      MHD_OPTION_LISTEN_SOCKET, listening->fd.release(),                                                   //
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, options_.max_request_bytes + kParsingBytes,                      //
      MHD_OPTION_CONNECTION_LIMIT, static_cast<unsigned>(options_.max_connections + kClosingConnections),  //
      MHD_OPTION_CONNECTION_TIMEOUT, 0u,                                                                   //
      MHD_OPTION_STRICT_FOR_CLIENT, 1,                                                                     //
      MHD_OPTION_NOTIFY_CONNECTION, &OnConnection, this,                                                   //
      MHD_OPTION_URI_LOG_CALLBACK, &OnUri, this,                                                           //
      MHD_OPTION_NOTIFY_COMPLETED, &OnCompleted, this, MHD_OPTION_END);
  if (daemon_ == nullptr)
    return Internal("listen on " + listening->address + ": the HTTP library did not start");
  epoll_ = MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
  port_ = listening->port;
  address_ = listening->address;

  // Signals are the main thread's.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { Serve(); });
  } catch (const std::system_error& error) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    MHD_stop_daemon(std::exchange(daemon_, nullptr));
    return ResourceExhausted(std::string("thread of the HTTP server: ") + error.what());
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return {};
}

void HttpServer::Impl::Stop() {
  if (daemon_ == nullptr) return;
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
  MHD_stop_daemon(std::exchange(daemon_, nullptr));
  connections_.clear();
}

void HttpServer::Impl::Serve() {
  ::pthread_setname_np(::pthread_self(), "lockstep-http");
  pollfd waits[2] = {{epoll_, POLLIN, 0}, {wake_.get(), POLLIN, 0}};
  while (true) {
    ::poll(waits, 2, PollTimeout());
    if (waits[1].revents != 0) return;
    MHD_run(daemon_);
    CutOverdue();
  }
}

// In milliseconds, until libmicrohttpd or a deadline wants to run; -1: nothing does.
int HttpServer::Impl::PollTimeout() const {
  MHD_UNSIGNED_LONG_LONG library = 0;
  if (MHD_get_timeout(daemon_, &library) == MHD_YES && library == 0) return 0;
  Clock::time_point next = Clock::time_point::max();
  for (const auto& [key, connection] : connections_) {
    if (!connection->cut) next = std::min(next, connection->deadline);
  }
  if (next == Clock::time_point::max()) return -1;
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(wait, 0, std::numeric_limits<int>::max()));
}

void HttpServer::Impl::CutOverdue() {
  const Clock::time_point now = Clock::now();
  for (const auto& [key, connection] : connections_) {
    if (!connection->cut && connection->deadline <= now) Cut(*connection);
  }
}

// libmicrohttpd sees the end of the connection in its next round and closes it.
void HttpServer::Impl::Cut(Connection& connection) {
  connection.cut = true;
  ::shutdown(connection.fd, SHUT_RDWR);
}

void HttpServer::Impl::Admit(Connection& newcomer) {
  int open = 0;
  int same_host = 0;
  for (const auto& [key, connection] : connections_) {
    if (connection->cut) continue;
    ++open;
    if (connection->host == newcomer.host) ++same_host;
  }
  if (!newcomer.loopback && same_host > options_.max_connections_per_address) {
    CutLongestIdle(newcomer, true);
  } else if (open > options_.max_connections) {
    CutLongestIdle(newcomer, false);
  }
}

void HttpServer::Impl::CutLongestIdle(const Connection& newcomer, bool same_host) {
  Connection* oldest = nullptr;
  for (const auto& [key, connection] : connections_) {
    if (connection->cut || connection.get() == &newcomer) continue;
    if (same_host && connection->host != newcomer.host) continue;
    if (oldest == nullptr || connection->idle_since < oldest->idle_since) oldest = connection.get();
  }
  if (oldest != nullptr) Cut(*oldest);
}

void HttpServer::Impl::OnConnection(void* self_pointer, MHD_Connection* connection, void** context,
                                    MHD_ConnectionNotificationCode code) {
  Impl& self = *static_cast<Impl*>(self_pointer);
  if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
    self.connections_.erase(static_cast<Connection*>(*context));
    return;
  }
  auto made = std::make_unique<Connection>();
  made->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
  const sockaddr* peer = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;
  made->host = HostOf(peer);
  made->loopback = IsLoopback(peer);
  made->idle_since = Clock::now();
  made->deadline = made->idle_since + self.options_.request_deadline;
  Connection* raw = made.get();
  *context = raw;
  self.connections_.emplace(raw, std::move(made));
  self.Admit(*raw);
}

// The request line is complete.
void* HttpServer::Impl::OnUri(void* self, const char* uri, MHD_Connection* connection) {
  Connection& state = ContextOf(connection);
  state.uri = uri;
  state.headers_seen = false;
  // On a kept-alive connection the time until now was a wait for the request.
  state.deadline =
      std::min(state.deadline, Clock::now() + static_cast<Impl*>(self)->options_.request_deadline);
  return nullptr;
}

void HttpServer::Impl::OnCompleted(void* self, MHD_Connection* connection, void**,
                                   MHD_RequestTerminationCode) {
  Connection& state = ContextOf(connection);
  state.idle_since = Clock::now();
  state.deadline = state.idle_since + static_cast<Impl*>(self)->options_.keep_alive;
}

// Called once when the headers are complete, and again when the (empty) body is.
MHD_Result HttpServer::Impl::OnRequest(void* self_pointer, MHD_Connection* connection, const char*,
                                       const char* method, const char*, const char*, size_t*, void**) {
  const Impl& self = *static_cast<Impl*>(self_pointer);
  Connection& state = ContextOf(connection);

  Request request{.method = method, .path = PathOf(state.uri), .query = QueryOf(state.uri), .headers = {}};
  MHD_get_connection_values(connection, MHD_HEADER_KIND, &CollectHeader, &request.headers);

  if (!state.headers_seen) {
    state.headers_seen = true;
    const size_t size =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE)->header_size;
    const size_t limit = self.options_.max_request_bytes;
    if (state.uri.size() > limit)
      return Queue(connection, Plain(414, "the request's line is too long"), true);
    if (size > limit) return Queue(connection, Plain(431, "the request's headers are too large"), true);
    if (request.method != "GET" && request.method != "HEAD") {
      Response response = Plain(405, "GET and HEAD only");
      response.headers.emplace_back("Allow", "GET, HEAD");
      return Queue(connection, response, true);
    }
    if (HasBody(request)) return Queue(connection, Plain(413, "a request has no body here"), true);
    return MHD_YES;
  }
  return Queue(connection, self.Answer(request), false);
}

Response HttpServer::Impl::Answer(const Request& request) const {
  const auto it = handlers_.find(request.path);
  if (it == handlers_.end()) {
    std::string body = "no such path; there are:";
    for (const auto& [path, handler] : handlers_) body += "\n  " + path;
    return Plain(404, std::move(body));
  }
  try {
    Response response = it->second(request);
    if (response.compresses) Compress(request, response);
    return response;
  } catch (const std::exception& error) {
    log::Error("http: " + request.path + ": " + error.what());
    return Plain(500, "this failed here; see the launcher's messages");
  }
}

MHD_Result HttpServer::Impl::Queue(MHD_Connection* connection, const Response& response, bool close) {
  // The cast is the interface's: with MUST_COPY the buffer is only read.
  MHD_Response* made = MHD_create_response_from_buffer(
      response.body.size(), const_cast<char*>(response.body.data()), MHD_RESPMEM_MUST_COPY);
  if (made == nullptr) return MHD_NO;
  MHD_add_response_header(made, "Content-Type", response.content_type.c_str());
  MHD_add_response_header(made, "Cache-Control", "no-store");
  MHD_add_response_header(made, "X-Content-Type-Options", "nosniff");
  for (const auto& [name, value] : response.headers)
    MHD_add_response_header(made, name.c_str(), value.c_str());
  if (close) MHD_add_response_header(made, "Connection", "close");
  const MHD_Result queued = MHD_queue_response(connection, static_cast<unsigned>(response.status), made);
  MHD_destroy_response(made);
  return queued;
}

HttpServer::HttpServer(ServerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
HttpServer::~HttpServer() { Stop(); }
void HttpServer::Handle(std::string path, Handler handler) {
  impl_->handlers_[std::move(path)] = std::move(handler);
}
Status HttpServer::Start() { return impl_->Start(); }
void HttpServer::Stop() { impl_->Stop(); }
int HttpServer::port() const { return impl_->port_; }
std::string HttpServer::address() const { return impl_->address_; }

}  // namespace lockstep::http
