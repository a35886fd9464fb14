#include "launcher/http/key_value_server.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace lockstep::http {

namespace {

constexpr size_t kMaxValue = size_t{1} << 20;  // the job's store takes as much
constexpr size_t kConnectionBytes = 16 * 1024;
constexpr unsigned kTimeoutSeconds = 10;
// One that waits, one that brings what is waited for, and as many again that close.
constexpr unsigned kConnectionsOfAClient = 4;

// "SCOPE/KEY" of "/SCOPE/KEY"; empty if it is none.
std::string_view KeyOf(std::string_view path) {
  if (!path.starts_with('/')) return {};
  path.remove_prefix(1);
  const size_t slash = path.find('/');
  const bool two = slash != std::string_view::npos && slash > 0 && slash + 1 < path.size() &&
                   path.find('/', slash + 1) == std::string_view::npos;
  return two ? path : std::string_view();
}

MHD_Result Answer(MHD_Connection* connection, unsigned status, const std::string& body = "") {
  MHD_Response* const response =
      MHD_create_response_from_buffer(body.size(), const_cast<char*>(body.data()), MHD_RESPMEM_MUST_COPY);
  if (response == nullptr) return MHD_NO;
  const MHD_Result queued = MHD_queue_response(connection, status, response);
  MHD_destroy_response(response);
  return queued;
}

}  // namespace

class KeyValueServer::Impl {
 public:
  explicit Impl(Options options) : options_(std::move(options)) {}
  ~Impl() {
    if (daemon_ != nullptr) MHD_stop_daemon(daemon_);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status Start() {
    sockaddr_in address{.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    // A thread a connection, since `get` waits.
    daemon_ = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD, 0, nullptr, nullptr, &OnRequest,
        this, MHD_OPTION_SOCK_ADDR, reinterpret_cast<sockaddr*>(&address), MHD_OPTION_CONNECTION_LIMIT,
        kConnectionsOfAClient * static_cast<unsigned>(std::max(1, options_.clients)),
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, kConnectionBytes, MHD_OPTION_CONNECTION_TIMEOUT, kTimeoutSeconds,
        MHD_OPTION_NOTIFY_COMPLETED, &OnCompleted, nullptr, MHD_OPTION_END);
    const MHD_DaemonInfo* const info =
        daemon_ == nullptr ? nullptr : MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_BIND_PORT);
    if (info == nullptr) return Unavailable("listen on 127.0.0.1: no port or no memory is free");
    port_ = info->port;
    return {};
  }

  int port() const { return port_; }

 private:
  static MHD_Result OnRequest(void* self, MHD_Connection* connection, const char* url, const char* method,
                              const char*, const char* data, size_t* size, void** context) {
    if (*context == nullptr) {
      *context = new std::string;
      return MHD_YES;
    }
    std::string& body = *static_cast<std::string*>(*context);
    if (*size > 0) {
      if (body.size() + *size > kMaxValue) return MHD_NO;
      body.append(data, std::exchange(*size, 0));
      return MHD_YES;
    }
    return static_cast<Impl*>(self)->Handle(connection, method, KeyOf(url), body);
  }

  static void OnCompleted(void*, MHD_Connection*, void** context, MHD_RequestTerminationCode) {
    delete static_cast<std::string*>(*context);
    *context = nullptr;
  }

  MHD_Result Handle(MHD_Connection* connection, std::string_view method, std::string_view key,
                    const std::string& body) const {
    if (key.empty()) return Answer(connection, MHD_HTTP_BAD_REQUEST);
    if (method == MHD_HTTP_METHOD_GET) {
      const Result<std::string> value = options_.get(std::string(key));
      if (value.ok()) return Answer(connection, MHD_HTTP_OK, *value);
      const bool missing = value.status().code() == StatusCode::kNotFound;
      return Answer(connection, missing ? MHD_HTTP_NOT_FOUND : MHD_HTTP_SERVICE_UNAVAILABLE);
    }
    if (method == MHD_HTTP_METHOD_PUT) {
      const bool ok = options_.put(std::string(key), body).ok();
      return Answer(connection, ok ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE);
    }
    // All keys go with the generation.
    const bool deletes = method == MHD_HTTP_METHOD_DELETE;
    return Answer(connection, deletes ? MHD_HTTP_OK : MHD_HTTP_METHOD_NOT_ALLOWED);
  }

  const Options options_;
  MHD_Daemon* daemon_ = nullptr;
  int port_ = 0;
};

KeyValueServer::KeyValueServer(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
KeyValueServer::~KeyValueServer() = default;

Result<std::unique_ptr<KeyValueServer>> KeyValueServer::Start(Options options) {
  std::unique_ptr<KeyValueServer> server(new KeyValueServer(std::move(options)));
  LOCKSTEP_RETURN_IF_ERROR(server->impl_->Start());
  return server;
}

int KeyValueServer::port() const { return impl_->port(); }

}  // namespace lockstep::http
