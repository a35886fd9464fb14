#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/kube/config.h"
#include "launcher/kube/error.h"
#include "launcher/kube/resource.h"

// kube/: talking to the Kubernetes API, for the operator and the command line. Objects are JSON, as the
// server has them; a caller takes out what it uses and lets go of the rest.
//
//  - Every call has a deadline, from its turn in the rate limit to the last byte of its answer.
//  - Answers are bounded, and so is what is kept of an error.
//  - A failure is typed (error.h). Calls that the server turned away unread (429, or 503 with Retry-After)
//  are
//    repeated after the time that it asks for, as long as the deadline allows; an answer that was lost is
//    not: whether to write again is the caller's to decide. (A GET, LIST or Lease is as good repeated by the
//    caller.)
//  - Credentials appear in no message, and in no log: this folder logs nothing.
//
// client.h has the calls, follow.h list and watch for ever, lease.h a lock among processes.
namespace lockstep::kube {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

// What an observer sees of a finished request: for rest_client_requests_total and its latency.
struct RequestRecord {
  std::string_view method;  // "GET", "POST", "PUT", "PATCH", "DELETE"
  std::string_view host;    // "10.0.0.1:6443"
  int http_status = 0;      // 0: no answer
  std::chrono::nanoseconds duration{0};
};

struct ClientOptions {
  // A token bucket over all calls but watches. 0: no limit.
  double requests_per_second = 50;
  int burst = 100;
  std::chrono::milliseconds timeout{30'000};  // of a call that brings none
  size_t max_answer_bytes = 64 << 20;         // of one answer, and of one event of a watch
  std::string user_agent = "lockstep";
  std::string field_manager = "lockstep";
  std::function<void(const RequestRecord&)> observer = {};  // on the calling thread, many at a time
};

struct CallOptions {
  std::optional<std::chrono::milliseconds> timeout = {};  // the client's when not given
  bool dry_run = false;                                   // a write is checked and answered, not kept
  std::string_view subresource = {};                      // "status", "scale" …
};

struct StreamOptions {
  std::chrono::milliseconds timeout{30 * 60'000};  // of all of it
  std::chrono::milliseconds silence{0};            // longest time without a byte; 0: until the timeout
};

struct ListOptions {
  std::string space = {};  // namespace; empty: all of them, or a kind that has none
  std::string label_selector = {};
  std::string field_selector = {};
  int page = 500;                                         // objects an answer; 0: all in one
  std::optional<std::chrono::milliseconds> timeout = {};  // of each page
};

struct WatchOptions {
  std::string space = {};
  std::string label_selector = {};
  std::string field_selector = {};
  std::string resource_version = {};   // events after it; of a list or of an event before
  std::chrono::seconds duration{300};  // then the server ends it, which is no error
  std::chrono::seconds silence{0};  // longest time without a byte before it is given up; 0: duration + 15 s
};

enum class EventType { kAdded, kModified, kDeleted, kBookmark };

struct ApplyOptions {
  // Takes fields over from other managers. Never of fields that another controller owns.
  bool force = false;
  CallOptions call = {};
};

enum class Propagation { kBackground, kForeground, kOrphan };

struct DeleteOptions {
  Propagation propagation = Propagation::kBackground;
  std::string uid = {};               // only the object with this uid, else kConflict
  std::string resource_version = {};  // only this version of it, else kConflict
  std::optional<std::chrono::seconds> grace_period = {};
  CallOptions call = {};
};

// A client of one API server. Safe from every thread; calls block, and run side by side on their own
// connections, which are kept open and used again. Outlives its calls.
class Client {
 public:
  // Reads nothing and connects to nothing. kInvalidArgument: the server's address, or keys that are none.
  static Result<std::unique_ptr<Client>> Make(Config config, ClientOptions options = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Every call and watch in progress ends with kStopped as soon as it can, and later ones at once. Once and
  // for all.
  void Stop();
  bool stopped() const;
  // Waits, for a backoff say. False as soon as the client is stopped.
  bool Sleep(std::chrono::milliseconds time);

  const std::string& default_namespace() const;

  Answer<Json> Get(const Resource& resource, const ObjectName& name, const CallOptions& options = {});

  // All objects, page by page, each once. Returns the resourceVersion to watch from. kExpired when the list
  // was changed too much meanwhile: what was handed out is then of use to nobody. `take` may move from the
  // object, which has apiVersion and kind set.
  Answer<std::string> List(const Resource& resource, const ListOptions& options,
                           const std::function<void(Json& object)>& take);

  // Events until the server ends the watch, `take` returns false (then too it is no error) or something
  // fails. Returns the resourceVersion to go on from. kExpired: list again. Bookmarks come as events with an
  // object that has a resourceVersion and nothing else. `take` runs on the calling thread.
  Answer<std::string> Watch(const Resource& resource, const WatchOptions& options,
                            const std::function<bool(EventType type, Json& object)>& take);

  // The writes answer with the object as the server now has it. apiVersion and kind of `object` are set where
  // it has none; so is its namespace.
  Answer<Json> Create(const Resource& resource, const std::string& space, const Json& object,
                      const CallOptions& options = {});
  // Replaces. With metadata.resourceVersion in `object` only that version of it, else kConflict.
  Answer<Json> Update(const Resource& resource, const ObjectName& name, const Json& object,
                      const CallOptions& options = {});
  // Server-side apply as ClientOptions::field_manager: creates the object or changes the fields that are
  // given. With metadata.uid only that object (kConflict), so that it is never created; with
  // metadata.resourceVersion only that version of it.
  Answer<Json> Apply(const Resource& resource, const ObjectName& name, const Json& object,
                     const ApplyOptions& options = {});
  // RFC 7386. With metadata.resourceVersion or metadata.uid in `patch` only that object, else kConflict.
  Answer<Json> MergePatch(const Resource& resource, const ObjectName& name, const Json& patch,
                          const CallOptions& options = {});
  // Answers with the object or with a Status.
  Answer<Json> Delete(const Resource& resource, const ObjectName& name, const DeleteOptions& options = {});

  // GET of a path as it is ("/readyz", "/version", "/openapi/v3"): the body.
  Answer<std::string> GetText(const std::string& path, const CallOptions& options = {});
  // GET of a path whose answer comes bit by bit and may be of any length (a pod's log): `take` gets it, on
  // the calling thread, until it ends or `take` returns false. Whether it came to its end.
  Answer<bool> Stream(const std::string& path, const StreamOptions& options,
                      const std::function<bool(std::string_view bytes)>& take);

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::kube
