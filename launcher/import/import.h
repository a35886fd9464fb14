#pragma once

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

// import/: what others' operators and launchers are told, as TrainingJobs. It is a translation of texts:
// nothing is started, no cluster is asked.
//
//   source.h   another's manifest, which remembers what was asked for: what nobody asked for is told in the
//   end,
//              so that a field can be left out, but never in silence
//   kinds.h    one file a kind: TFJob, PyTorchJob, MPIJob, TrainJob, JobSet, Volcano's Job
//   pod.h      a pod template as a role's program, devices and template
//   torchrun.h, mpirun.h   command lines of launchers
//   write.h    the TrainingJob as YAML, checked by Lockstep's own validator
namespace lockstep::importer {

// One line about the translation.
struct Note {
  std::string file;
  int line = 0;      // from 1; 0: of a command line
  std::string path;  // of the other's field, "spec.pytorchReplicaSpecs.Master.replicas", or option
  std::string what;  // what became of it, and what would be right
  bool left_out = false;

  // "FILE:LINE: PATH: WHAT", one line, control characters escaped.
  std::string ToString() const;
  bool operator==(const Note&) const = default;
};

struct Imported {
  std::string manifests;     // TrainingJobs as YAML, --- between; empty: there was none
  std::vector<Note> notes;   // all of them, in the order of the files
  std::vector<Note> errors;  // what could not be read, or what came out and is no valid TrainingJob
  int jobs = 0;
};

// A file's text and the name that notes call it by.
struct Input {
  std::string name;
  std::string text;
};

// Every job of every document of `inputs`, and of every item of a List; other kinds get a note. Never throws.
// Bounded as spec::ReadManifests is, and as strict about YAML.
Imported ImportManifests(const std::vector<Input>& inputs);

// `command_line`: as one types it, variables before it included: "OMP_NUM_THREADS=4 torchrun --nproc-per-node
// 4 train.py", or with python -m torch.distributed.run or .launch.
Imported ImportTorchrun(std::string_view command_line);

struct Options {
  std::vector<std::string> files;  // "-" is standard input
  std::string torchrun;            // instead of files
  bool strict = false;
};

// `lockstep import`: the manifests to `out`, a line for each note and error to `errors`. Returns the exit
// code: 0 when everything was translated or told, contract::kExitUsage when a file could not be read, when
// there was no job in any, or when what came out breaks a rule; and 1 if `strict` and something was left out.
int Import(const Options& options, std::ostream& out, std::ostream& errors);

}  // namespace lockstep::importer
