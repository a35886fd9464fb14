#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "common/status.h"
#include "launcher/http/client.h"
#include "launcher/kube/error.h"

namespace lockstep::kube {

// "VERB RESOURCE NAME: what", made one line and cut to Error::message's length.
Error MakeError(Reason reason, const std::string& operation, std::string_view what, int http_status = 0);

// Of a request without an answer.
Error FromStatus(const Status& status, const std::string& operation);

// Of an answer that is none of 2xx, whose body is a Status object or anything else. `creates`: a 409 without
// a reason is AlreadyExists.
Error FromResponse(const http::HttpResponse& response, const std::string& operation, bool creates);

// Of a Status object: a watch's ERROR event, or a body.
Error FromStatusObject(const nlohmann::json& object, int http_status, const std::string& operation,
                       bool creates);

// The header Retry-After in seconds.
std::optional<std::chrono::seconds> RetryAfter(const http::HttpResponse& response);

// Empty when `text` is no JSON object.
std::optional<nlohmann::json> ParseObject(std::string_view text);

// Empty when `object` has no such string.
std::string Text(const nlohmann::json& object, const char* key);

}  // namespace lockstep::kube
