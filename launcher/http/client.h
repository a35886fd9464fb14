#pragma once

#include <chrono>
#include <map>
#include <string>

#include "common/status.h"

namespace lockstep::http {

struct HttpResponse {
  int status = 0;
  std::string content_type;
  std::string body;
  std::map<std::string, std::string> headers;  // names in lower case; of a repeated one, the last
};

// One GET of `url` ("http://HOST[:PORT]/PATH", HOST may be [v6]), from connecting to the last byte, by
// `deadline`; redirects are not followed. Any HTTP status is a response, not an error.
//
// kInvalidArgument: the URL; kUnavailable: nobody there, or the connection broke; kDeadlineExceeded;
// kResourceExhausted: the body is longer than `max_bytes`. Messages name the URL. Blocks; safe from every
// thread. For servers that are trusted: their headers are bounded by the deadline only.
Result<HttpResponse> Get(const std::string& url, std::chrono::steady_clock::time_point deadline,
                         size_t max_bytes = 1 << 20);

}  // namespace lockstep::http
