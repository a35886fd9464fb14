#pragma once

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "launcher/spec/training_job.h"

// Manifests in, TrainingJobs or errors out. Nothing here throws, and nothing in a manifest can make it hang,
// crash or use more than 64 MiB: input is bounded to kMaxManifestBytes, kMaxDepth and kMaxNodes, and anchors,
// aliases and merge keys are refused.
namespace lockstep::spec {

inline constexpr size_t kMaxManifestBytes = 1 << 20;
inline constexpr int kMaxDepth = 64;         // lists and mappings within one another
inline constexpr int kMaxNodes = 100'000;    // of a file: scalars, lists, mappings and documents
inline constexpr int kMaxDiagnostics = 100;  // of a document, and of a file but for its last document

// One error of a manifest.
struct Diagnostic {
  std::string file;
  int line = 0;      // from 1
  int column = 0;    // from 1, in characters
  std::string path;  // "spec.strategy.type"; empty where no field is meant (syntax, limits)
  std::string what;  // "WHAT IS WRONG; WHAT WOULD BE RIGHT"

  // "FILE:LINE:COLUMN: PATH: WHAT", one line, control characters escaped.
  std::string ToString() const;
  bool operator==(const Diagnostic&) const = default;
};

struct Manifests {
  std::vector<TrainingJob> jobs;     // those without an error, in the order of the file
  std::vector<Diagnostic> errors;    // all of them, in the order of the file
  std::vector<std::string> notices;  // "FILE:LINE: a ConfigMap, skipped"
};

// Reads every document of `text`; `file_name` is only for the messages. A syntax error ends the reading,
// since what follows it cannot be trusted; documents before it are still checked. A text without any document
// is an error. Scalars are those of YAML 1.2's core schema; the few that kubectl reads differently (yes, on,
// 010, 1_000, …) are refused, so that no manifest means one thing here and another in a cluster.
Manifests ReadManifests(std::string_view text, const std::string& file_name);

// The text of a manifest's file; "-" is standard input. Directories, devices, sockets and FIFOs are
// kInvalidArgument without being waited for, more than kMaxManifestBytes is kResourceExhausted. The message
// begins with the path.
Result<std::string> ReadManifestFile(const std::string& path);

// `lockstep validate FILE…`: errors and notices go to `errors`, one line each; "FILE: NAME is valid" to `out`
// for every job. Returns the exit code: 0, or contract::kExitUsage when any file has an error or cannot be
// read.
int ValidateFiles(const std::vector<std::string>& paths, std::ostream& out, std::ostream& errors);

}  // namespace lockstep::spec
