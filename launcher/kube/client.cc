#include "launcher/kube/client.h"

#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "launcher/http/session.h"
#include "launcher/kube/answer.h"
#include "launcher/kube/encode.h"
#include "launcher/kube/rate_limit.h"
#include "launcher/kube/token_source.h"

namespace lockstep::kube {

namespace {

constexpr char kJson[] = "application/json";
constexpr char kAnything[] = "*/*";
constexpr std::chrono::seconds kDefaultRetryAfter{1};
constexpr std::chrono::seconds kWatchSlack{15};

// A request before it has a deadline, a token and a turn.
struct Call {
  std::string operation;  // for messages
  std::string method;
  std::string target;
  std::string body = {};
  std::string content_type = {};
  std::optional<std::chrono::milliseconds> timeout = {};
  bool creates = false;
  bool limited = true;
  std::chrono::milliseconds silence{0};
  std::function<bool(std::string_view)> receive = {};
  std::string_view accept = kJson;
};

// "?a=b&c=d".
class Query {
 public:
  void Add(std::string_view name, std::string_view value) {
    text_ += (text_.empty() ? "?" : "&") + std::string(name) + "=" + PercentEncoded(value);
  }
  void AddGiven(std::string_view name, std::string_view value) {
    if (!value.empty()) Add(name, value);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string Operation(std::string_view verb, const Resource& resource, const ObjectName& name,
                      std::string_view subresource = {}) {
  std::string text = std::string(verb) + " " + std::string(resource.plural);
  if (!subresource.empty()) text += "/" + std::string(subresource);
  if (const std::string object = name.ToString(); !object.empty()) text += " " + object;
  return text;
}

std::string Dump(const Json& object) { return object.dump(-1, ' ', false, Json::error_handler_t::replace); }

// The object as it is sent: with its apiVersion, kind, name and namespace.
Json Complete(const Resource& resource, const ObjectName& name, Json object) {
  if (!object.contains("apiVersion")) object["apiVersion"] = resource.api_version();
  if (!object.contains("kind")) object["kind"] = resource.kind;
  Json& metadata = object["metadata"];
  if (!name.name.empty() && !metadata.contains("name")) metadata["name"] = name.name;
  if (resource.namespaced && !name.space.empty() && !metadata.contains("namespace"))
    metadata["namespace"] = name.space;
  return object;
}

std::string MetadataText(const Json& object, const char* key) {
  const auto metadata = object.find("metadata");
  if (metadata == object.end() || !metadata->is_object()) return {};
  const auto value = metadata->find(key);
  return value != metadata->end() && value->is_string() ? value->get<std::string>() : std::string();
}

std::optional<EventType> EventTypeOf(std::string_view name) {
  if (name == "ADDED") return EventType::kAdded;
  if (name == "MODIFIED") return EventType::kModified;
  if (name == "DELETED") return EventType::kDeleted;
  if (name == "BOOKMARK") return EventType::kBookmark;
  return std::nullopt;
}

// Puts a watch's lines together and takes its events apart.
class EventReader {
 public:
  EventReader(std::string operation, std::string version, size_t longest,
              const std::function<bool(EventType, Json&)>& take)
      : operation_(std::move(operation)), version_(std::move(version)), longest_(longest), take_(take) {}

  // False: no more is wanted.
  bool Add(std::string_view bytes) {
    while (!bytes.empty()) {
      const size_t end = bytes.find('\n');
      const std::string_view part = bytes.substr(0, end);
      if (line_.size() + part.size() > longest_) return Fail("an event is longer than is read");
      line_ += part;
      if (end == std::string_view::npos) return true;
      bytes.remove_prefix(end + 1);
      const std::string line = std::exchange(line_, {});
      if (!line.empty() && !Event(line)) return false;
    }
    return true;
  }

  const std::optional<Error>& error() const { return error_; }
  const std::string& version() const { return version_; }

 private:
  bool Fail(std::string_view what) {
    error_ = MakeError(Reason::kMalformed, operation_, what);
    return false;
  }

  bool Event(const std::string& line) {
    std::optional<Json> event = ParseObject(line);
    if (!event || !event->contains("type") || !(*event)["type"].is_string() || !event->contains("object") ||
        !(*event)["object"].is_object()) {
      return Fail("a line is no event");
    }
    const std::string type = (*event)["type"].get<std::string>();
    Json& object = (*event)["object"];
    if (type == "ERROR") {
      error_ = FromStatusObject(object, 0, operation_, false);
      return false;
    }
    const std::optional<EventType> known = EventTypeOf(type);
    if (!known) return true;
    std::string version = MetadataText(object, "resourceVersion");
    if (version.empty()) return Fail("an event has no resourceVersion");
    const bool more = take_(*known, object);
    version_ = std::move(version);
    return more;
  }

  const std::string operation_;
  std::string version_;
  const size_t longest_;
  const std::function<bool(EventType, Json&)>& take_;
  std::string line_;
  std::optional<Error> error_;
};

}  // namespace

class Client::Impl {
 public:
  Impl(std::unique_ptr<http::Session> session, const Config& config, ClientOptions options)
      : options_(std::move(options)),
        default_namespace_(config.default_namespace),
        session_(std::move(session)),
        token_(config),
        limit_(options_.requests_per_second, options_.burst, Clock::now()) {}

  void Stop() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    session_->Stop();
  }

  bool stopped() const {
    const std::lock_guard lock(mutex_);
    return stopped_;
  }

  bool SleepUntil(Clock::time_point time) {
    std::unique_lock lock(mutex_);
    return !changed_.wait_until(lock, time, [this] { return stopped_; });
  }

  Answer<http::HttpResponse> Send(const Call& call) {
    const Clock::time_point deadline = Clock::now() + call.timeout.value_or(options_.timeout);
    bool renewed = false;
    while (true) {
      if (call.limited) {
        const auto turn = limit_.Reserve(Clock::now(), deadline);
        if (!turn) return MakeError(Reason::kDeadline, call.operation, "no turn in the rate limit in time");
        if (!SleepUntil(*turn)) return Stopped(call);
      }
      const std::string token = token_.Get();
      auto response = SendOnce(call, token, deadline);
      if (!response.ok()) {
        if (stopped()) return Stopped(call);
        return FromStatus(response.status(), call.operation);
      }
      if (response->status >= 200 && response->status < 300) return *std::move(response);
      if (response->status == 401 && !renewed && token_.Renew(token)) {
        renewed = true;
        continue;
      }
      Error error = FromResponse(*response, call.operation, call.creates);
      const auto pause = PauseBeforeRepeat(*response);
      if (!pause || Clock::now() + *pause >= deadline) return error;
      if (!SleepUntil(Clock::now() + *pause)) return Stopped(call);
    }
  }

  Answer<Json> SendForObject(const Call& call) {
    auto response = Send(call);
    if (!response.ok()) return response.error();
    std::optional<Json> object = ParseObject(response->body);
    if (!object)
      return MakeError(Reason::kMalformed, call.operation, "the answer is no object", response->status);
    return *std::move(object);
  }

  // A write of an object or of a patch.
  Answer<Json> Write(Call call, Query query, const CallOptions& options) {
    if (options.dry_run) query.Add("dryRun", "All");
    call.target += query.text();
    call.timeout = options.timeout;
    return SendForObject(call);
  }

  const ClientOptions& options() const { return options_; }
  const std::string& default_namespace() const { return default_namespace_; }

 private:
  static Error Stopped(const Call& call) { return MakeError(Reason::kStopped, call.operation, "stopped"); }

  Result<http::HttpResponse> SendOnce(const Call& call, const std::string& token,
                                      Clock::time_point deadline) {
    http::SessionRequest request{
        .method = call.method,
        .target = call.target,
        .headers = {{"Accept", std::string(call.accept)}, {"User-Agent", options_.user_agent}},
        .body = call.body,
        .content_type = call.content_type,
        .deadline = deadline,
        .silence = call.silence,
        .max_bytes = options_.max_answer_bytes,
        .receive = call.receive};
    if (!token.empty()) request.headers.emplace_back("Authorization", "Bearer " + token);
    const Clock::time_point began = Clock::now();
    auto response = session_->Send(request);
    if (options_.observer) {
      options_.observer({.method = call.method,
                         .host = session_->host(),
                         .http_status = response.ok() ? response->status : 0,
                         .duration = Clock::now() - began});
    }
    return response;
  }

  // Whether the server turned the request away unread, and for how long.
  static std::optional<std::chrono::seconds> PauseBeforeRepeat(const http::HttpResponse& response) {
    const auto after = RetryAfter(response);
    if (response.status == 429) return after.value_or(kDefaultRetryAfter);
    return response.status == 503 ? after : std::nullopt;
  }

  const ClientOptions options_;
  const std::string default_namespace_;
  const std::unique_ptr<http::Session> session_;
  TokenSource token_;
  RateLimit limit_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
};

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

Result<std::unique_ptr<Client>> Client::Make(Config config, ClientOptions options) {
  auto session = http::Session::Make({.url = config.server,
                                      .tls = {.authorities = config.ca_pem,
                                              .client_certificate = config.client_certificate_pem,
                                              .client_key = config.client_key_pem,
                                              .server_name = config.server_name,
                                              .skip_verification = config.skip_verification}});
  if (!session.ok()) return session.status();
  return std::unique_ptr<Client>(
      new Client(std::make_unique<Impl>(*std::move(session), config, std::move(options))));
}

void Client::Stop() { impl_->Stop(); }
bool Client::stopped() const { return impl_->stopped(); }
bool Client::Sleep(std::chrono::milliseconds time) { return impl_->SleepUntil(Clock::now() + time); }
const std::string& Client::default_namespace() const { return impl_->default_namespace(); }

Answer<Json> Client::Get(const Resource& resource, const ObjectName& name, const CallOptions& options) {
  return impl_->SendForObject({.operation = Operation("get", resource, name, options.subresource),
                               .method = "GET",
                               .target = PathOf(resource, name, options.subresource),
                               .timeout = options.timeout});
}

Answer<std::string> Client::List(const Resource& resource, const ListOptions& options,
                                 const std::function<void(Json& object)>& take) {
  std::string proceed;
  while (true) {
    Query query;
    query.AddGiven("labelSelector", options.label_selector);
    query.AddGiven("fieldSelector", options.field_selector);
    if (options.page > 0) query.Add("limit", std::to_string(options.page));
    query.AddGiven("continue", proceed);
    const Call call{.operation = Operation("list", resource, {.space = options.space}),
                    .method = "GET",
                    .target = PathOf(resource, {.space = options.space}) + query.text(),
                    .timeout = options.timeout};
    auto page = impl_->SendForObject(call);
    if (!page.ok()) return page.error();
    const auto items = page->find("items");
    std::string version = MetadataText(*page, "resourceVersion");
    if (items == page->end() || !(items->is_array() || items->is_null()) || version.empty())
      return MakeError(Reason::kMalformed, call.operation, "the answer is no list");
    for (Json& item : *items) {
      if (!item.is_object()) return MakeError(Reason::kMalformed, call.operation, "an item is no object");
      // The server leaves these out within lists.
      item["apiVersion"] = resource.api_version();
      item["kind"] = resource.kind;
      take(item);
    }
    proceed = MetadataText(*page, "continue");
    if (proceed.empty()) return version;
  }
}

Answer<std::string> Client::Watch(const Resource& resource, const WatchOptions& options,
                                  const std::function<bool(EventType type, Json& object)>& take) {
  Query query;
  query.Add("watch", "1");
  query.Add("allowWatchBookmarks", "true");
  query.Add("timeoutSeconds", std::to_string(options.duration.count()));
  query.AddGiven("resourceVersion", options.resource_version);
  query.AddGiven("labelSelector", options.label_selector);
  query.AddGiven("fieldSelector", options.field_selector);
  const std::string operation = Operation("watch", resource, {.space = options.space});
  EventReader events(operation, options.resource_version, impl_->options().max_answer_bytes, take);
  const auto response = impl_->Send({.operation = operation,
                                     .method = "GET",
                                     .target = PathOf(resource, {.space = options.space}) + query.text(),
                                     .timeout = options.duration + kWatchSlack,
                                     .limited = false,
                                     .silence = options.silence,
                                     .receive = [&](std::string_view bytes) { return events.Add(bytes); }});
  if (events.error()) return *events.error();
  if (!response.ok()) return response.error();
  return events.version();
}

Answer<Json> Client::Create(const Resource& resource, const std::string& space, const Json& object,
                            const CallOptions& options) {
  const ObjectName name{.space = space, .name = MetadataText(object, "name")};
  Query query;
  query.Add("fieldManager", impl_->options().field_manager);
  return impl_->Write({.operation = Operation("create", resource, name),
                       .method = "POST",
                       .target = PathOf(resource, {.space = space}),
                       .body = Dump(Complete(resource, name, object)),
                       .content_type = kJson,
                       .creates = true},
                      std::move(query), options);
}

Answer<Json> Client::Update(const Resource& resource, const ObjectName& name, const Json& object,
                            const CallOptions& options) {
  Query query;
  query.Add("fieldManager", impl_->options().field_manager);
  return impl_->Write({.operation = Operation("update", resource, name, options.subresource),
                       .method = "PUT",
                       .target = PathOf(resource, name, options.subresource),
                       .body = Dump(Complete(resource, name, object)),
                       .content_type = kJson},
                      std::move(query), options);
}

Answer<Json> Client::Apply(const Resource& resource, const ObjectName& name, const Json& object,
                           const ApplyOptions& options) {
  Query query;
  query.Add("fieldManager", impl_->options().field_manager);
  query.Add("force", options.force ? "true" : "false");
  return impl_->Write({.operation = Operation("apply", resource, name, options.call.subresource),
                       .method = "PATCH",
                       .target = PathOf(resource, name, options.call.subresource),
                       .body = Dump(Complete(resource, name, object)),
                       // JSON is YAML.
                       .content_type = "application/apply-patch+yaml"},
                      std::move(query), options.call);
}

Answer<Json> Client::MergePatch(const Resource& resource, const ObjectName& name, const Json& patch,
                                const CallOptions& options) {
  Query query;
  query.Add("fieldManager", impl_->options().field_manager);
  return impl_->Write({.operation = Operation("patch", resource, name, options.subresource),
                       .method = "PATCH",
                       .target = PathOf(resource, name, options.subresource),
                       .body = Dump(patch),
                       .content_type = "application/merge-patch+json"},
                      std::move(query), options);
}

Answer<Json> Client::Delete(const Resource& resource, const ObjectName& name, const DeleteOptions& options) {
  Json body = {{"apiVersion", "v1"}, {"kind", "DeleteOptions"}};
  constexpr const char* kPolicies[] = {"Background", "Foreground", "Orphan"};
  body["propagationPolicy"] = kPolicies[static_cast<size_t>(options.propagation)];
  if (!options.uid.empty()) body["preconditions"]["uid"] = options.uid;
  if (!options.resource_version.empty()) body["preconditions"]["resourceVersion"] = options.resource_version;
  if (options.grace_period) body["gracePeriodSeconds"] = options.grace_period->count();
  // With a body the server does not look at the query.
  if (options.call.dry_run) body["dryRun"] = {"All"};
  return impl_->Write({.operation = Operation("delete", resource, name),
                       .method = "DELETE",
                       .target = PathOf(resource, name),
                       .body = Dump(body),
                       .content_type = kJson},
                      {}, options.call);
}

Answer<std::string> Client::GetText(const std::string& path, const CallOptions& options) {
  auto response = impl_->Send({.operation = "get " + path,
                               .method = "GET",
                               .target = path,
                               .timeout = options.timeout,
                               .accept = kAnything});
  if (!response.ok()) return response.error();
  return std::move(response->body);
}

Answer<bool> Client::Stream(const std::string& path, const StreamOptions& options,
                            const std::function<bool(std::string_view bytes)>& take) {
  bool wanted = true;
  const auto response = impl_->Send({.operation = "get " + path.substr(0, path.find('?')),
                                     .method = "GET",
                                     .target = path,
                                     .timeout = options.timeout,
                                     .silence = options.silence,
                                     .receive = [&](std::string_view bytes) { return wanted = take(bytes); },
                                     .accept = kAnything});
  if (!response.ok()) return response.error();
  return wanted;
}

}  // namespace lockstep::kube
