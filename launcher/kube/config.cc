#include "launcher/kube/config.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

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

struct File {
  Node document;
  std::string path;
};

// An entry of a kubeconfig, and the file that it stands in. Empty: there is none.
struct Found {
  const Node* map = nullptr;
  const File* file = nullptr;
};

// One kubeconfig or several as one, of which one context is taken: of an entry that is in two of them, the
// first one's counts.
class Reader {
 public:
  // `name` is what all of them are called in messages.
  Reader(const std::vector<File>& files, std::string name) : files_(files), name_(std::move(name)) {}

  Result<Config> Read(const std::string& wanted) {
    std::string context_name = wanted;
    for (const File& file : files_) {
      if (context_name.empty()) context_name = Text(&file.document, "current-context");
    }
    if (context_name.empty()) return NotFound(name_ + ": has no current-context; name one");
    const Found context = Entry("contexts", "context", context_name);
    if (context.map == nullptr) return NotFound(name_ + ": has no context " + context_name);
    const std::string cluster_name = Text(context.map, "cluster");
    const std::string user_name = Text(context.map, "user");
    const Found cluster = Entry("clusters", "cluster", cluster_name);
    if (cluster.map == nullptr) return NotFound(name_ + ": has no cluster " + cluster_name);
    const Found user = Entry("users", "user", user_name);
    if (user.map == nullptr && !user_name.empty()) return NotFound(name_ + ": has no user " + user_name);

    Config config;
    if (const std::string space = Text(context.map, "namespace"); !space.empty())
      config.default_namespace = space;
    config.server = Text(cluster.map, "server");
    config.server_name = Text(cluster.map, "tls-server-name");
    config.skip_verification = Text(cluster.map, "insecure-skip-tls-verify") == "true";
    const std::string& cluster_path = cluster.file->path;
    if (config.server.empty())
      return InvalidArgument(cluster_path + ": the cluster " + cluster_name + " has no server");
    if (!Text(cluster.map, "proxy-url").empty())
      return Unimplemented(cluster_path + ": proxy-url is not supported; leave it out, or use kubectl proxy");
    for (const std::string_view plugin : {"exec", "auth-provider", "username"}) {
      if (user.map == nullptr || user.map->Find(plugin) == nullptr) continue;
      return Unimplemented(user.file->path + ": the user " + user_name + " has " + std::string(plugin) +
                           ", which is not supported; use a certificate, a token or a tokenFile");
    }
    config.token = Text(user.map, "token");
    if (config.token.empty()) config.token_file = Resolved(user, Text(user.map, "tokenFile"));
    LOCKSTEP_RETURN_IF_ERROR(Data(cluster, "certificate-authority", &config.ca_pem));
    LOCKSTEP_RETURN_IF_ERROR(Data(user, "client-certificate", &config.client_certificate_pem));
    LOCKSTEP_RETURN_IF_ERROR(Data(user, "client-key", &config.client_key_pem));
    return config;
  }

 private:
  // `lists: [{name: NAME, field: …}]`.
  Found Entry(std::string_view list, std::string_view field, const std::string& name) const {
    for (const File& file : files_) {
      const Node* entries = file.document.Find(list);
      if (entries == nullptr || entries->kind != Node::Kind::kList) continue;
      for (const Node& entry : entries->items) {
        if (entry.kind != Node::Kind::kMap || Text(&entry, "name") != name) continue;
        const Node* found = entry.Find(field);
        if (found == nullptr || found->kind != Node::Kind::kMap) return {};
        return {.map = found, .file = &file};
      }
    }
    return {};
  }

  static std::string Resolved(const Found& entry, const std::string& path) {
    return path.empty() ? path : (std::filesystem::path(entry.file->path).parent_path() / path).string();
  }

  // `field`-data in base64, which comes first as with kubectl, or the file `field`.
  static Status Data(const Found& entry, const std::string& field, std::string* value) {
    if (const std::string data = Text(entry.map, field + "-data"); !data.empty()) {
      *value = Base64Decoded(data);
      return value->empty() ? InvalidArgument(entry.file->path + ": " + field + "-data is no base64")
                            : Status();
    }
    const std::string path = Resolved(entry, Text(entry.map, field));
    if (path.empty()) return {};
    Result<std::string> text = ReadSmallFile(path);
    if (!text.ok())
      return {text.status().code(), entry.file->path + ": " + field + ": " + text.status().message()};
    *value = *std::move(text);
    return {};
  }

  const std::vector<File>& files_;
  const std::string name_;
};

Result<File> ReadFile(const std::string& path) {
  const Result<std::string> text = ReadSmallFile(path);
  if (!text.ok()) return text.status();
  spec::YamlText yaml = spec::ParseYaml(*text);
  // The parser's own words may quote the text, which holds credentials.
  if (!yaml.errors.empty()) {
    const spec::Mark mark = yaml.errors.front().mark;
    return InvalidArgument(path + ":" + std::to_string(mark.line) + ": not the YAML of a kubeconfig");
  }
  if (yaml.documents.size() != 1 || yaml.documents.front().kind != Node::Kind::kMap)
    return InvalidArgument(path + ": not a kubeconfig");
  return File{.document = std::move(yaml.documents.front()), .path = path};
}

// $KUBECONFIG: files with colons between; those that are not there are left out, as kubectl does.
Result<Config> LoadList(const std::string& list, const std::string& context) {
  if (list.find(':') == std::string::npos) return LoadKubeconfig(list, context);
  std::vector<File> files;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(':', begin), list.size());
    const std::string path = list.substr(begin, end - begin);
    begin = end + 1;
    if (path.empty()) continue;
    Result<File> file = ReadFile(path);
    if (!file.ok() && file.status().code() == StatusCode::kNotFound) continue;
    if (!file.ok()) return file.status();
    files.push_back(*std::move(file));
  }
  if (files.empty()) return NotFound(list + ": no such files");
  return Reader(files, list).Read(context);
}

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
  Result<File> file = ReadFile(path);
  if (!file.ok()) return file.status();
  const std::vector<File> files = {*std::move(file)};
  return Reader(files, path).Read(context);
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
  if (const std::string path = Environment("KUBECONFIG"); !path.empty()) return LoadList(path, context);
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
