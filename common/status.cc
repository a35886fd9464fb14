#include "common/status.h"

#include <cerrno>
#include <cstring>

namespace lockstep {

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kNotFound:
      return "not found";
    case StatusCode::kPermissionDenied:
      return "permission denied";
    case StatusCode::kFailedPrecondition:
      return "failed precondition";
    case StatusCode::kResourceExhausted:
      return "resource exhausted";
    case StatusCode::kDeadlineExceeded:
      return "deadline exceeded";
    case StatusCode::kUnavailable:
      return "unavailable";
    case StatusCode::kAborted:
      return "aborted";
    case StatusCode::kUnimplemented:
      return "unimplemented";
    case StatusCode::kInternal:
      return "internal";
  }
  return "unknown";
}

static StatusCode CodeOfErrno(int error) {
  switch (error) {
    case ENOENT:
      return StatusCode::kNotFound;
    case EACCES:
    case EPERM:
      return StatusCode::kPermissionDenied;
    case EINVAL:
    case ENOTDIR:
    case EISDIR:
      return StatusCode::kInvalidArgument;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return StatusCode::kResourceExhausted;
    case ETIMEDOUT:
      return StatusCode::kDeadlineExceeded;
    case EAGAIN:
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case EHOSTUNREACH:
    case ENETUNREACH:
      return StatusCode::kUnavailable;
    default:
      return StatusCode::kInternal;
  }
}

Status Status::FromErrno(int error, std::string_view operation) {
  return {CodeOfErrno(error), std::string(operation) + ": " + std::strerror(error)};
}

bool Status::retryable() const {
  return code_ == StatusCode::kDeadlineExceeded || code_ == StatusCode::kUnavailable ||
         code_ == StatusCode::kAborted;
}

std::string Status::ToString() const {
  return ok() ? "ok" : std::string(StatusCodeName(code_)) + ": " + message_;
}

}  // namespace lockstep
