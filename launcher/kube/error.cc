#include "launcher/kube/error.h"

#include <array>

namespace lockstep::kube {

std::string_view ReasonName(Reason reason) {
  constexpr std::array<std::string_view, 13> kNames = {
      "BadRequest", "Unauthorized",    "Forbidden",   "NotFound", "AlreadyExists", "Conflict", "Expired",
      "Invalid",    "TooManyRequests", "ServerError", "Deadline", "Unreachable",   "Stopped"};
  const auto index = static_cast<size_t>(reason);
  return index < kNames.size() ? kNames[index] : "Malformed";
}

bool Error::retryable() const {
  switch (reason) {
    case Reason::kUnauthorized:
    case Reason::kConflict:
    case Reason::kExpired:
    case Reason::kTooManyRequests:
    case Reason::kServerError:
    case Reason::kDeadline:
    case Reason::kUnreachable:
      return true;
    case Reason::kBadRequest:
    case Reason::kForbidden:
    case Reason::kNotFound:
    case Reason::kAlreadyExists:
    case Reason::kInvalid:
    case Reason::kStopped:
    case Reason::kMalformed:
      return false;
  }
  return false;
}

bool Error::maybe_done() const {
  return reason == Reason::kServerError || reason == Reason::kDeadline || reason == Reason::kUnreachable ||
         reason == Reason::kStopped || reason == Reason::kMalformed;
}

Status Error::ToStatus() const {
  switch (reason) {
    case Reason::kBadRequest:
    case Reason::kInvalid:
      return InvalidArgument(message);
    case Reason::kUnauthorized:
    case Reason::kForbidden:
      return PermissionDenied(message);
    case Reason::kNotFound:
      return NotFound(message);
    case Reason::kAlreadyExists:
      return FailedPrecondition(message);
    case Reason::kConflict:
    case Reason::kExpired:
      return Aborted(message);
    case Reason::kTooManyRequests:
    case Reason::kServerError:
    case Reason::kUnreachable:
      return Unavailable(message);
    case Reason::kDeadline:
      return DeadlineExceeded(message);
    case Reason::kStopped:
      return FailedPrecondition(message);
    case Reason::kMalformed:
      return Internal(message);
  }
  return Internal(message);
}

}  // namespace lockstep::kube
