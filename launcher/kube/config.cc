#include "launcher/kube/config.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "launcher/kube/read_file.h"
#include "launcher/spec/yaml_tree.h"

namespace lockstep::kube {

namespace {

constexpr size_t kLongestFile = 1 << 20;

using spec::Node;

// The bytes of a kubeconfig's *-data field; empty when it is no base64.
std::string Base64Decoded(std::string_view text) {
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  while (text.ends_with('=')) text.remove_suffix(1);
  for (const char c : text) {
    uint32_t value = 0;
    if (c >= 'A' && c <= 'Z') {
      value = static_cast<uint32_t>(c - 'A');
    } else if (c >= 'a' && c <= 'z') {
      value = static_cast<uint32_t>(c - 'a') + 26;
    } else if (c >= '0' && c <= '9') {
      value = static_cast<uint32_t>(c - '0') + 52;
    } else if (c == '+' || c == '/') {
      value = c == '+' ? 62 : 63;
    } else if (c == '\n' || c == ' ') {
      continue;
    } else {
      return {};
    }
    bits = (bits << 6) | value;
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>((bits >> count) & 0xff);
  }
  return bytes;
}

// The text of a field; empty when it is absent, null or no scalar.
std::string Text(const Node* map, std::string_view key) {
  const Node* node = map == nullptr ? nullptr : map->Find(key);
  if (node == nullptr || node->kind != Node::Kind::kScalar) return {};
  const bool null = !node->quoted && (node->text == "~" || node->text == "null");
  return null ? std::string() : node->text;
}

// One kubeconfig, of which one context is taken.
class Reader {
 public:
  Reader(const Node& document, std::string path)
      : document_(document), path_(std::move(path)), folder_(std::filesystem::path(path_).parent_path()) {}

  Result<Config> Read(const std::string& wanted) {
    const std::string context_name = wanted.empty() ? Text(&document_, "current-context") : wanted;
    if (context_name.empty()) return NotFound(path_ + ": has no current-context; name one");
    const Node* context = Entry("contexts", "context", context_name);
    if (context == nullptr) return NotFound(path_ + ": has no context " + context_name);
    const std::string cluster_name = Text(context, "cluster");
    const std::string user_name = Text(context, "user");
    const Node* cluster = Entry("clusters", "cluster", cluster_name);
    if (cluster == nullptr) return NotFound(path_ + ": has no cluster " + cluster_name);
    const Node* user = Entry("users", "user", user_name);
    if (user == nullptr && !user_name.empty()) return NotFound(path_ + ": has no user " + user_name);

    Config config;
    if (const std::string space = Text(context, "namespace"); !space.empty())
      config.default_namespace = space;
    config.server = Text(cluster, "server");
    config.server_name = Text(cluster, "tls-server-name");
    config.skip_verification = Text(cluster, "insecure-skip-tls-verify") == "true";
    if (config.server.empty())
      return InvalidArgument(path_ + ": the cluster " + cluster_name + " has no server");
    if (!Text(cluster, "proxy-url").empty())
      return Unimplemented(path_ + ": proxy-url is not supported; leave it out, or use kubectl proxy");
    for (const std::string_view plugin : {"exec", "auth-provider", "username"}) {
      if (user == nullptr || user->Find(plugin) == nullptr) continue;
      return Unimplemented(path_ + ": the user " + user_name + " has " + std::string(plugin) +
                           ", which is not supported; use a certificate, a token or a tokenFile");
    }
    config.token = Text(user, "token");
    if (config.token.empty()) config.token_file = Resolved(Text(user, "tokenFile"));
    LOCKSTEP_RETURN_IF_ERROR(Data(cluster, "certificate-authority", &config.ca_pem));
    LOCKSTEP_RETURN_IF_ERROR(Data(user, "client-certificate", &config.client_certificate_pem));
    LOCKSTEP_RETURN_IF_ERROR(Data(user, "client-key", &config.client_key_pem));
    return config;
  }

 private:
  // `lists: [{name: NAME, field: …}]`.
  const Node* Entry(std::string_view list, std::string_view field, const std::string& name) const {
    const Node* entries = document_.Find(list);
    if (entries == nullptr || entries->kind != Node::Kind::kList) return nullptr;
    for (const Node& entry : entries->items) {
      if (entry.kind != Node::Kind::kMap || Text(&entry, "name") != name) continue;
      const Node* found = entry.Find(field);
      return found != nullptr && found->kind == Node::Kind::kMap ? found : nullptr;
    }
    return nullptr;
  }

  std::string Resolved(const std::string& path) const {
    return path.empty() ? path : (folder_ / path).string();
  }

  // `field`-data in base64, which comes first as with kubectl, or the file `field`.
  Status Data(const Node* map, const std::string& field, std::string* value) const {
    if (const std::string data = Text(map, field + "-data"); !data.empty()) {
      *value = Base64Decoded(data);
      return value->empty() ? InvalidArgument(path_ + ": " + field + "-data is no base64") : Status();
    }
    const std::string path = Resolved(Text(map, field));
    if (path.empty()) return {};
    Result<std::string> text = ReadSmallFile(path);
    if (!text.ok()) return {text.status().code(), path_ + ": " + field + ": " + text.status().message()};
    *value = *std::move(text);
    return {};
  }

  const Node& document_;
  const std::string path_;
  const std::filesystem::path folder_;
};

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace

Result<std::string> ReadSmallFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return NotFound(path + ": no such file");
  if (!std::filesystem::is_regular_file(path, error)) return InvalidArgument(path + ": not a regular file");
  std::ifstream file(path, std::ios::binary);
  if (!file) return PermissionDenied(path + ": cannot be read");
  std::string text(kLongestFile + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kLongestFile) return ResourceExhausted(path + ": longer than 1 MiB");
  return text;
}

Result<Config> LoadKubeconfig(const std::string& path, const std::string& context) {
  const Result<std::string> text = ReadSmallFile(path);
  if (!text.ok()) return text.status();
  const spec::YamlText yaml = spec::ParseYaml(*text);
  // The parser's own words may quote the text, which holds credentials.
  if (!yaml.errors.empty()) {
    const spec::Mark mark = yaml.errors.front().mark;
    return InvalidArgument(path + ":" + std::to_string(mark.line) + ": not the YAML of a kubeconfig");
  }
  if (yaml.documents.size() != 1 || yaml.documents.front().kind != Node::Kind::kMap)
    return InvalidArgument(path + ": not a kubeconfig");
  return Reader(yaml.documents.front(), path).Read(context);
}

Result<Config> InClusterConfig(const std::string& folder) {
  std::string host = Environment("KUBERNETES_SERVICE_HOST");
  const std::string port = Environment("KUBERNETES_SERVICE_PORT");
  if (host.empty() || port.empty())
    return FailedPrecondition("not in a pod: KUBERNETES_SERVICE_HOST and _PORT are not set");
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  Config config;
  config.server = "https://" + host + ":" + port;
  config.token_file = folder + "/token";
  Result<std::string> authority = ReadSmallFile(folder + "/ca.crt");
  if (!authority.ok())
    return FailedPrecondition("the pod has no service account: " + authority.status().message());
  config.ca_pem = *std::move(authority);
  if (const Result<std::string> token = ReadSmallFile(config.token_file); !token.ok())
    return FailedPrecondition("the pod has no service account: " + token.status().message());
  if (Result<std::string> space = ReadSmallFile(folder + "/namespace"); space.ok() && !space->empty()) {
    std::erase_if(*space, [](unsigned char c) { return c <= ' '; });
    config.default_namespace = *std::move(space);
  }
  return config;
}

Result<Config> FindConfig(const std::string& kubeconfig, const std::string& context) {
  if (!kubeconfig.empty()) return LoadKubeconfig(kubeconfig, context);
  if (const std::string path = Environment("KUBECONFIG"); !path.empty()) return LoadKubeconfig(path, context);
  if (Result<Config> pod = InClusterConfig(); pod.ok()) return pod;
  const std::string path = Environment("HOME") + "/.kube/config";
  Result<Config> config = LoadKubeconfig(path, context);
  if (config.ok() || config.status().code() != StatusCode::kNotFound || std::filesystem::exists(path))
    return config;
  return NotFound(
      "no cluster is configured: no kubeconfig is named, KUBECONFIG is not set, this is not a pod, and " +
      path + " is not there");
}

}  // namespace lockstep::kube
