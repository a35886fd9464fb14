#include "launcher/kube/resource.h"

#include "launcher/kube/encode.h"

namespace lockstep::kube {

std::string Resource::api_version() const {
  return group.empty() ? std::string(version) : std::string(group) + "/" + std::string(version);
}

std::string ObjectName::ToString() const { return space.empty() ? name : space + "/" + name; }

std::string PathOf(const Resource& resource, const ObjectName& name, std::string_view subresource) {
  std::string path = (resource.group.empty() ? "/api/" : "/apis/") + resource.api_version();
  if (resource.namespaced && !name.space.empty()) path += "/namespaces/" + PercentEncoded(name.space);
  path += "/" + std::string(resource.plural);
  if (!name.name.empty()) path += "/" + PercentEncoded(name.name);
  if (!subresource.empty()) path += "/" + std::string(subresource);
  return path;
}

std::string PercentEncoded(std::string_view text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  constexpr std::string_view kPlain = "-._~";
  std::string encoded;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter || kPlain.find(c) != std::string_view::npos) {
      encoded += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      encoded += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return encoded;
}

}  // namespace lockstep::kube
