#include "launcher/kube/answer.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace lockstep::kube {

namespace {

constexpr size_t kLongestMessage = 1000;

Reason ReasonOf(int http_status, std::string_view named, bool creates) {
  static constexpr std::pair<std::string_view, Reason> kNamed[] = {
      {"AlreadyExists", Reason::kAlreadyExists},
      {"Conflict", Reason::kConflict},
      {"Expired", Reason::kExpired},
      {"Gone", Reason::kExpired},
      {"NotFound", Reason::kNotFound},
      {"Invalid", Reason::kInvalid},
      {"Forbidden", Reason::kForbidden},
      {"Unauthorized", Reason::kUnauthorized},
      {"TooManyRequests", Reason::kTooManyRequests},
  };
  for (const auto& [name, reason] : kNamed) {
    if (name == named) return reason;
  }
  switch (http_status) {
    case 401:
      return Reason::kUnauthorized;
    case 403:
      return Reason::kForbidden;
    case 404:
      return Reason::kNotFound;
    case 409:
      return creates ? Reason::kAlreadyExists : Reason::kConflict;
    case 410:
      return Reason::kExpired;
    case 422:
      return Reason::kInvalid;
    case 429:
      return Reason::kTooManyRequests;
    default:
      return http_status >= 500 ? Reason::kServerError : Reason::kBadRequest;
  }
}

}  // namespace

std::string Text(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Error MakeError(Reason reason, const std::string& operation, std::string_view what, int http_status) {
  std::string message = operation + ": " + std::string(what);
  std::replace_if(
      message.begin(), message.end(), [](unsigned char c) { return c < ' ' || c == 127; }, ' ');
  if (message.size() > kLongestMessage) {
    size_t end = kLongestMessage;
    while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xc0) == 0x80) --end;  // no half character
    message.resize(end);
  }
  return {.reason = reason, .http_status = http_status, .message = std::move(message)};
}

Error FromStatus(const Status& status, const std::string& operation) {
  Reason reason = Reason::kUnreachable;
  if (status.code() == StatusCode::kDeadlineExceeded) reason = Reason::kDeadline;
  if (status.code() == StatusCode::kAborted) reason = Reason::kStopped;
  if (status.code() == StatusCode::kResourceExhausted) reason = Reason::kMalformed;
  return MakeError(reason, operation, status.message());
}

Error FromStatusObject(const nlohmann::json& object, int http_status, const std::string& operation,
                       bool creates) {
  if (const auto code = object.find("code"); code != object.end() && code->is_number_integer())
    http_status = code->get<int>();
  std::string message = Text(object, "message");
  if (message.empty()) message = "HTTP " + std::to_string(http_status);
  Error error =
      MakeError(ReasonOf(http_status, Text(object, "reason"), creates), operation, message, http_status);
  const auto details = object.find("details");
  if (details == object.end() || !details->is_object()) return error;
  const auto seconds = details->find("retryAfterSeconds");
  if (seconds != details->end() && seconds->is_number_unsigned())
    error.retry_after = std::chrono::seconds(std::min<uint64_t>(seconds->get<uint64_t>(), 3600));
  return error;
}

Error FromResponse(const http::HttpResponse& response, const std::string& operation, bool creates) {
  Error error;
  if (const auto object = ParseObject(response.body); object && Text(*object, "kind") == "Status") {
    error = FromStatusObject(*object, response.status, operation, creates);
    error.http_status = response.status;
  } else {
    const std::string what = "HTTP " + std::to_string(response.status) +
                             (response.body.empty() ? "" : ": " + response.body.substr(0, kLongestMessage));
    error = MakeError(ReasonOf(response.status, {}, creates), operation, what, response.status);
  }
  if (const auto after = RetryAfter(response)) error.retry_after = after;
  return error;
}

std::optional<std::chrono::seconds> RetryAfter(const http::HttpResponse& response) {
  const auto header = response.headers.find("retry-after");
  if (header == response.headers.end()) return std::nullopt;
  const std::string& text = header->second;
  unsigned seconds = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return std::chrono::seconds(std::min(seconds, 3600U));
}

std::optional<nlohmann::json> ParseObject(std::string_view text) {
  nlohmann::json parsed = nlohmann::json::parse(text, nullptr, false);
  if (!parsed.is_object()) return std::nullopt;
  return parsed;
}

}  // namespace lockstep::kube
