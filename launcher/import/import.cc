#include "launcher/import/import.h"

#include <algorithm>
#include <array>
#include <deque>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "common/contract/exit_codes.h"
#include "launcher/import/kinds.h"
#include "launcher/import/source.h"
#include "launcher/import/write.h"
#include "launcher/spec/manifest.h"
#include "launcher/spec/quote.h"

namespace lockstep::importer {

namespace {

enum class Kind { kTfJob, kPyTorchJob, kMpiJob, kTrainJob, kJobSet, kVolcanoJob, kRuntime };

struct KnownKind {
  std::string_view api_version;
  std::string_view kind;
  Kind reads_as;
};

constexpr std::array kKnown = {
    KnownKind{"kubeflow.org/v1", "TFJob", Kind::kTfJob},
    KnownKind{"kubeflow.org/v1", "PyTorchJob", Kind::kPyTorchJob},
    KnownKind{"kubeflow.org/v1", "MPIJob", Kind::kMpiJob},
    KnownKind{"kubeflow.org/v2beta1", "MPIJob", Kind::kMpiJob},
    KnownKind{"trainer.kubeflow.org/v1alpha1", "TrainJob", Kind::kTrainJob},
    KnownKind{"trainer.kubeflow.org/v1alpha1", "TrainingRuntime", Kind::kRuntime},
    KnownKind{"trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime", Kind::kRuntime},
    KnownKind{"jobset.x-k8s.io/v1alpha2", "JobSet", Kind::kJobSet},
    KnownKind{"jobset.x-k8s.io/v1", "JobSet", Kind::kJobSet},
    KnownKind{"batch.volcano.sh/v1alpha1", "Job", Kind::kVolcanoJob},
};

const KnownKind* Find(const Field& object) {
  const auto* const found = std::find_if(kKnown.begin(), kKnown.end(), [&](const KnownKind& known) {
    return object["kind"].Peek() == known.kind && object["apiVersion"].Peek() == known.api_version;
  });
  return found == kKnown.end() ? nullptr : found;
}

// "a PyTorchJob is read as kubeflow.org/v1", for an object of another version; empty where no kind is of this
// name.
std::string OtherVersions(const Field& object) {
  const std::string_view version = object["apiVersion"].Peek();
  const std::string group = std::string(version.substr(0, version.find('/'))) + "/";
  std::string versions;
  for (const KnownKind& known : kKnown) {
    if (known.kind != object["kind"].Peek() || !known.api_version.starts_with(group)) continue;
    versions += (versions.empty() ? "" : " and ") + std::string(known.api_version);
  }
  return versions;
}

std::optional<spec::TrainingJob> Read(Kind kind, const Field& object, const Surroundings& surroundings) {
  switch (kind) {
    case Kind::kTfJob:
      return ReadTfJob(object);
    case Kind::kPyTorchJob:
      return ReadPyTorchJob(object);
    case Kind::kMpiJob:
      return ReadMpiJob(object);
    case Kind::kTrainJob:
      return ReadTrainJob(object, surroundings);
    case Kind::kJobSet:
      return ReadJobSet(object);
    case Kind::kVolcanoJob:
      return ReadVolcanoJob(object);
    case Kind::kRuntime:
      break;
  }
  return std::nullopt;
}

// The files of one call.
class Importer {
 public:
  Imported Import(const std::vector<Input>& inputs) {
    for (const Input& input : inputs) Parse(input);
    for (Document& document : documents_) {
      const KnownKind* known = Find(document.root());
      if (known != nullptr && known->reads_as == Kind::kRuntime)
        surroundings_.runtimes.push_back(document.root());
    }
    for (Document& document : documents_) Translate(document);
    // A runtime may be read for several jobs; what nobody took of it is known now.
    for (Document& document : documents_) Finish(document);
    Sort(inputs);
    return std::move(result_);
  }

 private:
  void Parse(const Input& input) {
    if (input.text.size() > spec::kMaxManifestBytes) {
      result_.errors.push_back({input.name, 1, "",
                                "has " + std::to_string(input.text.size()) + " bytes; at most " +
                                    std::to_string(spec::kMaxManifestBytes) + " are read"});
      return;
    }
    texts_.push_back(spec::ParseYaml(input.text));
    for (const spec::YamlError& error : texts_.back().errors) {
      result_.errors.push_back({input.name, error.mark.line, error.path, error.what});
    }
    for (const spec::Node& node : texts_.back().documents) {
      // What kubectl get prints of several objects.
      const spec::Node* kind = node.Find("kind");
      const spec::Node* items = node.Find("items");
      if (kind == nullptr || kind->text != "List" || items == nullptr ||
          items->kind != spec::Node::Kind::kList) {
        documents_.emplace_back(node, input.name, &result_.notes);
        continue;
      }
      for (const spec::Node& item : items->items) documents_.emplace_back(item, input.name, &result_.notes);
    }
    if (texts_.back().documents.empty() && texts_.back().errors.empty()) {
      result_.errors.push_back({input.name, 1, "", "holds nothing"});
    }
  }

  void Translate(Document& document) {
    const Field object = document.root();
    const KnownKind* known = Find(object);
    if (known == nullptr) return Skip(document);
    if (known->reads_as == Kind::kRuntime) return;
    const size_t before = result_.notes.size();
    std::optional<spec::TrainingJob> job;
    try {
      job = Read(known->reads_as, object, surroundings_);
    } catch (const nlohmann::json::exception&) {
      // A list where there is to be a mapping, or the like, in what is kept as it is.
      result_.errors.push_back(
          {document.file(), document.line(), std::string(known->kind),
           "its pods are no PodTemplateSpec; kubectl apply --dry-run=server says what is wrong"});
      result_.notes.resize(before);
      object.Value();
      return;
    }
    if (!job) {
      result_.errors.push_back({document.file(), document.line(), std::string(known->kind),
                                "has no pods that train; nothing came of it"});
      return;
    }
    Write(*job, document);
  }

  void Write(const spec::TrainingJob& job, const Document& document) {
    const Written written = WriteJob(job);
    if (result_.jobs++ > 0) result_.manifests += "---\n";
    result_.manifests += written.yaml;
    for (const Remark& remark : written.not_built) {
      result_.notes.push_back({document.file(), document.line(),
                               "TrainingJob " + job.name + ": " + remark.path,
                               remark.what + ": the job is refused when it is run", true});
    }
    for (const Remark& remark : written.broken) {
      result_.errors.push_back(
          {document.file(), document.line(), "TrainingJob " + job.name + ": " + remark.path, remark.what});
    }
  }

  void Skip(Document& document) {
    const Field object = document.root();
    const std::string kind(object["kind"].Peek().substr(0, 60));
    const std::string others = kind.empty() ? "" : OtherVersions(object);
    std::string what =
        kind.empty() ? "no object of Kubernetes: it has no kind; skipped" : "a " + kind + ", skipped";
    if (!others.empty()) {
      what = "a " + kind + " of " + spec::Quoted(object["apiVersion"].Peek()) + ", skipped; " + others +
             " is read";
    }
    object.Value();
    result_.notes.push_back({document.file(), document.line(), "", what, true});
  }

  void Finish(Document& document) {
    const Field object = document.root();
    const KnownKind* known = Find(object);
    if (known != nullptr && known->reads_as == Kind::kRuntime && !document.taken()) {
      object.Value();
      result_.notes.push_back({document.file(), document.line(), "",
                               "a " + std::string(known->kind) + ", skipped: no TrainJob here refers to it",
                               true});
    }
    document.TellTheRest();
  }

  void Sort(const std::vector<Input>& inputs) {
    const auto number = [&](const Note& note) {
      return std::find_if(inputs.begin(), inputs.end(),
                          [&](const Input& input) { return input.name == note.file; }) -
             inputs.begin();
    };
    for (std::vector<Note>* notes : {&result_.notes, &result_.errors}) {
      std::stable_sort(notes->begin(), notes->end(), [&](const Note& a, const Note& b) {
        return std::pair(number(a), a.line) < std::pair(number(b), b.line);
      });
      // What is shared by several roles or jobs is said once.
      std::vector<Note> once;
      for (Note& note : *notes) {
        if (std::find(once.begin(), once.end(), note) == once.end()) once.push_back(std::move(note));
      }
      *notes = std::move(once);
    }
  }

  std::deque<spec::YamlText> texts_;
  std::deque<Document> documents_;
  Surroundings surroundings_;
  Imported result_;
};

}  // namespace

std::string Note::ToString() const {
  std::string text = file;
  if (line > 0) text += ":" + std::to_string(line);
  if (!path.empty()) text += ": " + path;
  return spec::Printable(text + ": " + what);
}

Imported ImportManifests(const std::vector<Input>& inputs) { return Importer().Import(inputs); }

int Import(const Options& options, std::ostream& out, std::ostream& errors) {
  bool sound = true;
  Imported imported;
  if (options.torchrun.empty()) {
    std::vector<Input> inputs;
    for (const std::string& file : options.files) {
      Result<std::string> text = spec::ReadManifestFile(file);
      if (!text.ok()) {
        errors << text.status().message() << '\n';
        sound = false;
      } else {
        inputs.push_back({file, std::move(*text)});
      }
    }
    imported = ImportManifests(inputs);
    if (sound && imported.jobs == 0 && imported.errors.empty())
      errors << "no job in any file: lockstep import reads TFJob, PyTorchJob, MPIJob, TrainJob, JobSet and "
                "Volcano's Job\n";
  } else {
    imported = ImportTorchrun(options.torchrun);
  }
  out << imported.manifests;
  for (const Note& note : imported.notes) errors << note.ToString() << '\n';
  for (const Note& error : imported.errors) errors << error.ToString() << '\n';
  if (!sound || !imported.errors.empty() || imported.jobs == 0) return contract::kExitUsage;
  const bool left_out = std::any_of(imported.notes.begin(), imported.notes.end(),
                                    [](const Note& note) { return note.left_out; });
  return options.strict && left_out ? 1 : contract::kExitDone;
}

}  // namespace lockstep::importer
