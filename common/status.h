#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

// What an operation of the launcher came to. Launcher code returns these; the trainer throws
// (trainer/error.h).
namespace lockstep {

enum class StatusCode {
  kOk,
  kInvalidArgument,  // the caller's input is wrong, and will stay wrong
  kNotFound,
  kPermissionDenied,    // wrong token, old generation, file mode
  kFailedPrecondition,  // right in itself, but not now or not here
  kResourceExhausted,   // a limit of ours or of the machine
  kDeadlineExceeded,    // retryable; the message names what was waited for
  kUnavailable,         // retryable: a peer is gone or not there yet
  kAborted,             // retryable at the next generation
  kUnimplemented,       // known, and refused by name
  kInternal,
};

std::string_view StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  // "OPERATION: strerror(error)" with the code that fits `error` (an errno).
  static Status FromErrno(int error, std::string_view operation);

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // Whether doing the same again later may succeed.
  bool retryable() const;
  std::string ToString() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status InvalidArgument(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}
inline Status NotFound(std::string message) { return {StatusCode::kNotFound, std::move(message)}; }
inline Status PermissionDenied(std::string message) {
  return {StatusCode::kPermissionDenied, std::move(message)};
}
inline Status FailedPrecondition(std::string message) {
  return {StatusCode::kFailedPrecondition, std::move(message)};
}
inline Status ResourceExhausted(std::string message) {
  return {StatusCode::kResourceExhausted, std::move(message)};
}
inline Status DeadlineExceeded(std::string message) {
  return {StatusCode::kDeadlineExceeded, std::move(message)};
}
inline Status Unavailable(std::string message) { return {StatusCode::kUnavailable, std::move(message)}; }
inline Status Aborted(std::string message) { return {StatusCode::kAborted, std::move(message)}; }
inline Status Unimplemented(std::string message) { return {StatusCode::kUnimplemented, std::move(message)}; }
inline Status Internal(std::string message) { return {StatusCode::kInternal, std::move(message)}; }

// A value, or the status that says why there is none. Never holds an OK status.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : state_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return std::holds_alternative<T>(state_); }
  Status status() const { return ok() ? Status() : std::get<Status>(state_); }

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
  std::variant<T, Status> state_;
};

// Returns from the calling function when `expression` is not OK.
#define LOCKSTEP_RETURN_IF_ERROR(expression)                                      \
  do {                                                                            \
    if (::lockstep::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)

}  // namespace lockstep
