#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::http {

struct Url {
  bool tls = false;
  std::string host;       // without brackets
  std::string authority;  // "HOST[:PORT]" as written
  int port = 80;
  std::string path;  // with its query; "/" when there is none
};

// "http://HOST[:PORT][/PATH]" or the same with https, HOST may be [v6]. Empty when it is none.
std::optional<Url> ParseUrl(std::string_view text);

}  // namespace lockstep::http
