#include "launcher/spec/manifest.h"

#include <algorithm>
#include <array>
#include <ostream>
#include <tuple>
#include <utility>

#include "common/contract/exit_codes.h"
#include "launcher/spec/defaults.h"
#include "launcher/spec/quote.h"
#include "launcher/spec/read_fields.h"
#include "launcher/spec/scalar.h"
#include "launcher/spec/validate.h"

namespace lockstep::spec {

namespace {

// The node at `path`, or the nearest above it that is there.
const Node& Locate(const Node& document, std::string_view path, bool* exact = nullptr) {
  const Node* node = &document;
  const Node* next = node;
  while (!path.empty() && next != nullptr) {
    node = next;
    if (path.front() == '[') {
      const size_t end = path.find(']');
      const size_t index = std::strtoul(std::string(path.substr(1, end - 1)).c_str(), nullptr, 10);
      next = node->kind == Node::Kind::kList && index < node->items.size() ? &node->items[index] : nullptr;
      path.remove_prefix(end + 1);
    } else {
      if (path.front() == '.') path.remove_prefix(1);
      const size_t end = std::min(path.find_first_of(".["), path.size());
      next = node->Find(path.substr(0, end));
      path.remove_prefix(end);
    }
  }
  if (exact != nullptr) *exact = next != nullptr;
  return next == nullptr ? *node : *next;
}

bool Within(std::string_view path, std::string_view outer) {
  return path.starts_with(outer) &&
         (path.size() == outer.size() || path[outer.size()] == '.' || path[outer.size()] == '[');
}

class DocumentReader {
 public:
  DocumentReader(const Node& document, const std::string& file, PatternCache* patterns, Manifests* result)
      : document_(document), file_(file), result_(result), context_(patterns) {}

  // False: a document of another kind.
  bool IsTrainingJob() {
    const Node* kind = document_.Find("kind");
    const Node* version = document_.Find("apiVersion");
    if (kind == nullptr || kind->kind != Node::Kind::kScalar) return true;
    if (version != nullptr && version->kind != Node::Kind::kScalar) return true;
    const std::string_view group = version == nullptr
                                       ? std::string_view()
                                       : std::string_view(version->text).substr(0, version->text.find('/'));
    constexpr std::array<std::string_view, 1> kGroups = {"lockstep.dev"};
    constexpr std::array<std::string_view, 1> kKinds = {kKind};
    // Another kind of ours, or ours misspelt, is an error and not somebody else's business.
    if (group == kGroups[0]) return true;
    if (version == nullptr && !Nearest(kind->text, kKinds).empty()) return true;
    return kind->text == kKind && !Nearest(group, kGroups).empty();
  }

  void Skip() {
    std::vector<std::string>& notices = result_->notices;
    if (notices.size() > kMaxDiagnostics) return;
    const std::string place = file_ + ":" + std::to_string(document_.mark.line) + ": ";
    const bool enough = notices.size() == kMaxDiagnostics;
    notices.push_back(place +
                      (enough ? "and others from here on"
                              : "a " + Printable(document_.Find("kind")->text.substr(0, 60)) + ", skipped"));
  }

  // `sound`: the document has had no error so far.
  void Read(bool sound) {
    const bool is_map = document_.kind == Node::Kind::kMap;
    if (!is_map || (document_.Find("kind") == nullptr && document_.Find("apiVersion") == nullptr)) {
      context_.Add(document_.mark, "",
                   std::string(is_map ? "neither apiVersion nor kind is given" : "is no mapping") +
                       "; a TrainingJob begins with apiVersion: " + kApiVersion + " and kind: " + kKind);
      return Report();
    }
    TrainingJob job;
    Role worker;
    std::vector<Role> roles;
    Manifest manifest{&job, &worker, &roles};
    FieldReader reader(document_, "", &context_);
    Describe(reader, manifest);
    reader.Finish();

    job.roles = roles.empty() ? std::vector<Role>{std::move(worker)} : std::move(roles);
    SetDefaults(job, [this](std::string_view path) {
      bool given = false;
      const Node& node = Locate(document_, path, &given);
      return given && (node.kind != Node::Kind::kScalar || node.quoted ||
                       !std::holds_alternative<Null>(ResolvePlain(node.text)));
    });
    const std::vector<FieldError> read = context_.errors();
    for (Finding& finding : Validate(job)) {
      if (IsSpoilt(finding, read)) continue;
      const std::string path = AsWritten(finding.path);
      context_.Add(Locate(document_, path).mark, path, std::move(finding.what));
    }
    Report();
    if (context_.count() == 0 && sound) result_->jobs.push_back(std::move(job));
  }

 private:
  void Report() {
    for (const FieldError& error : context_.errors()) {
      result_->errors.push_back({file_, error.mark.line, error.mark.column, error.path, error.what});
    }
    if (context_.dropped() > 0) {
      result_->errors.push_back({file_, document_.mark.line, document_.mark.column, "",
                                 std::to_string(context_.dropped()) + " more errors; correct these first"});
    }
  }

  // Validate() says spec.devices of a single worker, which the manifest may have as spec.roles[0].devices.
  std::string AsWritten(const std::string& path) const {
    const Node* spec = document_.Find("spec");
    if (spec == nullptr || spec->Find("roles") == nullptr) return path;
    for (const std::string_view field :
         {"spec.replicas", "spec.processesPerReplica", "spec.devices", "spec.template"}) {
      if (Within(path, field)) return "spec.roles[0]" + path.substr(4);
    }
    return path;
  }

  // A rule is silent where a field that takes part in it could not be read.
  bool IsSpoilt(const Finding& finding, const std::vector<FieldError>& errors) const {
    const auto touches = [&](const std::string& field) {
      const std::string path = AsWritten(field);
      return std::any_of(errors.begin(), errors.end(), [&](const FieldError& error) {
        return Within(path, error.path) || Within(error.path, path);
      });
    };
    return touches(finding.path) || std::any_of(finding.with.begin(), finding.with.end(), touches);
  }

  const Node& document_;
  const std::string& file_;
  Manifests* result_;
  ReadContext context_;
};

bool Before(const Mark& a, const Mark& b) { return std::tie(a.line, a.column) < std::tie(b.line, b.column); }

}  // namespace

std::string Diagnostic::ToString() const {
  std::string text = file + ":" + std::to_string(line) + ":" + std::to_string(column) + ": ";
  if (!path.empty()) text += path + ": ";
  return Printable(text + what);
}

Manifests ReadManifests(std::string_view text, const std::string& file_name) {
  Manifests result;
  if (text.size() > kMaxManifestBytes) {
    result.errors.push_back({file_name, 1, 1, "",
                             "has " + std::to_string(text.size()) + " bytes; at most " +
                                 std::to_string(kMaxManifestBytes) + " are read"});
    return result;
  }
  YamlText yaml = ParseYaml(text);
  auto error = yaml.errors.begin();
  std::stable_sort(yaml.errors.begin(), yaml.errors.end(),
                   [](const YamlError& a, const YamlError& b) { return Before(a.mark, b.mark); });
  PatternCache patterns;
  for (size_t i = 0; i < yaml.documents.size(); ++i) {
    const Node& document = yaml.documents[i];
    if (result.errors.size() >= kMaxDiagnostics) {
      result.errors.push_back({file_name, document.mark.line, document.mark.column, "",
                               "not read from here on; correct the errors before first"});
      break;
    }
    DocumentReader reader(document, file_name, &patterns, &result);
    const bool ours = reader.IsTrainingJob();
    if (!ours) reader.Skip();
    // The errors of YAML in this document: duplicate keys, which matter only in ours.
    const bool last = i + 1 == yaml.documents.size();
    bool sound = true;
    for (; error != yaml.errors.end() && (last || Before(error->mark, yaml.documents[i + 1].mark)); ++error) {
      if (!ours && !error->path.empty()) continue;
      sound = sound && error->path.empty();
      result.errors.push_back({file_name, error->mark.line, error->mark.column, error->path, error->what});
    }
    if (ours) reader.Read(sound);
  }
  for (; error != yaml.errors.end() && result.errors.size() < kMaxDiagnostics; ++error) {
    result.errors.push_back({file_name, error->mark.line, error->mark.column, error->path, error->what});
  }
  if (yaml.documents.empty() && result.errors.empty()) {
    result.errors.push_back(
        {file_name, 1, 1, "",
         "holds nothing; a TrainingJob begins with apiVersion: " + std::string(kApiVersion)});
  }
  std::stable_sort(result.errors.begin(), result.errors.end(), [](const Diagnostic& a, const Diagnostic& b) {
    return std::tie(a.line, a.column) < std::tie(b.line, b.column);
  });
  return result;
}

int ValidateFiles(const std::vector<std::string>& paths, std::ostream& out, std::ostream& errors) {
  bool valid = true;
  for (const std::string& path : paths) {
    const Result<std::string> text = ReadManifestFile(path);
    if (!text.ok()) {
      errors << text.status().message() << '\n';
      valid = false;
      continue;
    }
    const Manifests manifests = ReadManifests(*text, path);
    for (const std::string& notice : manifests.notices) errors << notice << '\n';
    for (const Diagnostic& error : manifests.errors) errors << error.ToString() << '\n';
    for (const TrainingJob& job : manifests.jobs) out << path << ": " << job.name << " is valid\n";
    valid = valid && manifests.errors.empty();
  }
  return valid ? contract::kExitDone : contract::kExitUsage;
}

}  // namespace lockstep::spec
