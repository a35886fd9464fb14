#include "launcher/http/url.h"

#include <algorithm>
#include <charconv>

namespace lockstep::http {

std::optional<Url> ParseUrl(std::string_view text) {
  Url url;
  url.tls = text.starts_with("https://");
  if (!url.tls && !text.starts_with("http://")) return std::nullopt;
  url.port = url.tls ? 443 : 80;
  text.remove_prefix(text.find("//") + 2);
  const size_t slash = std::min(text.find('/'), text.size());
  url.authority = text.substr(0, slash);
  url.path = slash == text.size() ? "/" : text.substr(slash);
  std::string_view port;
  if (const size_t bracket = url.authority.find(']');
      url.authority.starts_with('[') && bracket != std::string::npos) {
    url.host = url.authority.substr(1, bracket - 1);
    port = std::string_view(url.authority).substr(bracket + 1);
  } else {
    const size_t colon = std::min(url.authority.find(':'), url.authority.size());
    url.host = url.authority.substr(0, colon);
    port = std::string_view(url.authority).substr(colon);
  }
  if (url.host.empty() ||
      std::any_of(text.begin(), text.end(), [](unsigned char c) { return c <= ' ' || c == 127; })) {
    return std::nullopt;
  }
  if (port.empty()) return url;
  const auto [end, error] = std::from_chars(port.data() + 1, port.data() + port.size(), url.port);
  if (port.front() != ':' || error != std::errc() || end != port.data() + port.size()) return std::nullopt;
  return url.port < 1 || url.port > 65535 ? std::nullopt : std::optional(url);
}

}  // namespace lockstep::http
