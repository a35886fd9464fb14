#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "common/status.h"

// Why a call of the Kubernetes API failed, as its caller has to tell failures apart.
namespace lockstep::kube {

enum class Reason {
  kBadRequest,     // 400, 405, 406, 413, 415 and what no other reason fits: wrong, and will stay wrong
  kUnauthorized,   // 401: the credentials are not accepted (a token file has been read again by then)
  kForbidden,      // 403: RBAC, quota or an admission plugin
  kNotFound,       // 404: no such object, namespace or resource
  kAlreadyExists,  // 409 to a Create
  kConflict,  // 409: the resourceVersion or uid of the request is not the object's; another field manager
              // owns a field that was applied
  kExpired,   // 410: the resourceVersion or continue token is too old; list again
  kInvalid,   // 422: the object breaks its schema or a rule
  kTooManyRequests,  // 429, and still so after waiting; a budget that forbids an eviction
  kServerError,      // 5xx
  kDeadline,         // no answer by the deadline, or the client's own rate limit had no turn before it
  kUnreachable,      // nobody there, TLS failed, or the connection broke
  kStopped,          // Client::Stop
  kMalformed,        // an answer that is not what the API gives, or longer than allowed
};
std::string_view ReasonName(Reason reason);  // "AlreadyExists"

struct Error {
  Reason reason = Reason::kServerError;
  int http_status = 0;  // 0: there was no answer
  // "VERB RESOURCE NAMESPACE/NAME: what the server said", one line of at most 1,000 bytes without
  // credentials.
  std::string message;
  std::optional<std::chrono::seconds> retry_after = {};  // the server's wish

  // Whether the same call later may succeed: the last six but kStopped and kMalformed, kConflict, kExpired,
  // kUnauthorized (tokens are rotated).
  bool retryable() const;
  // Whether a write may have been taken in spite of the error: the answer was lost.
  bool maybe_done() const;
  Status ToStatus() const;
};

// A value, or the error that says why there is none.
template <typename T>
class [[nodiscard]] Answer {
 public:
  Answer(T value) : state_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Answer(Error error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return std::holds_alternative<T>(state_); }
  // Whether it failed for this reason.
  bool failed_with(Reason reason) const { return !ok() && error().reason == reason; }
  // Only when not ok().
  const Error& error() const { return std::get<Error>(state_); }

  // Only when ok().
  T& value() & { return std::get<T>(state_); }
  const T& value() const& { return std::get<T>(state_); }
  T&& value() && { return std::get<T>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Error> state_;
};

}  // namespace lockstep::kube
