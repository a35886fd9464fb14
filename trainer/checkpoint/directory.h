#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/directory_names.h"

namespace lockstep::trainer::checkpoint {

// A folder of checkpoints. All names on disk are made and read in directory_names.h.
//
// One writer at a time, by terms: Claim() takes the next term, and from then on a writer of an earlier one
// (an old generation that was frozen and thaws) is refused. A checkpoint's name has its term in it, so that
// even a writer that passed the check just before it lost its term cannot overwrite or delete what a newer
// one has written. Within a run terms follow generations; another run (the job started anew, generation 0
// again) takes over, and the run before is then refused for good: two that run at once do not fight.
//
// A call at a time; it may be another thread each time. Readers (LoadNewest) need no claim, in any process.
class Directory {
 public:
  struct Options {
    std::string path;  // created when missing
    std::string run;   // names this run of the job: equal for all its generations; empty: not known
    int64_t generation = 0;
    int keep = 3;  // at least 1; older checkpoints are deleted once a new one is durable
  };

  explicit Directory(Options options) : options_(std::move(options)) {}

  // Becomes the writer, and removes what crashed writers left. Only one rank of a job may. Fails with
  //   kAborted: a newer generation of this run has claimed it: this process must end;
  //   kFailedPrecondition: another run took over from this one: it must not go on at all;
  //   kPermissionDenied, kInvalidArgument, kNotFound: the folder cannot be written, and will not heal by
  //   itself; anything else, kResourceExhausted above all: a full disk, say. Training may go on: Save claims
  //   again.
  Status Claim();

  // Writes a checkpoint, makes it durable, then deletes those in excess of `keep`. On failure the old ones
  // are all still there, and nothing half-written is left; training may go on with a warning, except for
  //   kAborted, kFailedPrecondition: as above: this process must end.
  // On success: the file's path. Of a snapshot whose values are in parts these must be there: kNotFound when
  // one is not, or is another than its seal says.
  Result<std::string> Save(const Snapshot& snapshot);

  // What the writer has claimed; 0: nothing. Save may change it.
  int64_t term() const { return term_; }
  // Writes a part of the checkpoint that the writer of `term` is to Save, and makes it durable. By any
  // process that sees the folder, without a claim; the parts that no checkpoint came to name are removed by
  // later writers. On failure nothing is left.
  Result<Seal> SavePart(int64_t term, PartNumber part, const Snapshot& snapshot) const;

  struct Loaded {
    Snapshot snapshot;
    std::string path;
  };
  // The newest whole checkpoint, put together of its parts where it has some (the latest term's latest step);
  // none when there is none, or no folder. Damaged ones and those of another format version are skipped, each
  // with a line added to `warnings`. Throws BadModel, saying what differs, when the newest whole one is
  // another model's, optimizer's, seed's or data set's; BadData when the folder cannot be read. Another
  // precision is a warning. Ranks must not each choose: one loads, or tells the others the path.
  std::optional<Loaded> LoadNewest(const Signature& job, std::vector<std::string>* warnings) const;
  // Exactly this one. Throws BadData when it is damaged, BadModel as above.
  static Snapshot Load(const std::string& path, const Signature& job);

 private:
  Status StillHolder() const;
  void Prune();
  void RemoveParts() const;

  Options options_;
  int64_t term_ = 0;  // 0: not claimed
};

}  // namespace lockstep::trainer::checkpoint
