#include "trainer/checkpoint/directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string_view>
#include <utility>

#include "common/unique_fd.h"
#include "trainer/checkpoint/parts.h"
#include "trainer/error.h"

namespace lockstep::trainer::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kFileMode = 0644;

Status FileStatus(int error, const std::string& what) {
  const Status status = Status::FromErrno(error, what);
  switch (error) {
    case EROFS:
      return PermissionDenied(status.message());
    case EEXIST:
    case ENAMETOOLONG:
    case ELOOP:
      return InvalidArgument(status.message());
    default:
      return status;
  }
}

// What is in the folder, the newest first.
struct Contents {
  std::vector<CheckpointId> checkpoints;
  std::vector<std::pair<CheckpointId, std::string>> parts;        // by name
  std::vector<std::pair<CheckpointId, std::string>> temporaries;  // by name; of checkpoints and of parts
  std::vector<int64_t> claims;

  int64_t latest_term() const {
    int64_t latest = claims.empty() ? 0 : claims.front();
    // The claims may be gone, where only the checkpoints were copied.
    return checkpoints.empty() ? latest : std::max(latest, checkpoints.front().term);
  }
};

Result<Contents> List(const std::string& path) {
  Contents contents;
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (const auto checkpoint = ParseCheckpointName(name)) contents.checkpoints.push_back(*checkpoint);
    if (const auto part = ParsePartName(name)) contents.parts.emplace_back(*part, name);
    if (const auto temporary = ParseTemporaryName(name)) contents.temporaries.emplace_back(*temporary, name);
    if (const auto claim = ParseClaimName(name)) contents.claims.push_back(*claim);
  }
  if (error) return FileStatus(error.value(), path);
  std::sort(contents.checkpoints.begin(), contents.checkpoints.end(), std::greater<>());
  std::sort(contents.claims.begin(), contents.claims.end(), std::greater<>());
  return contents;
}

Status SyncFolder(const std::string& path) {
  const UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || ::fsync(folder.get()) != 0) return FileStatus(errno, path + ": fsync");
  return {};
}

// Opens with `flags`, lets `write` fill, syncs and closes; removes the file again when any of it fails.
Status WriteFile(const std::string& path, int flags, const std::function<Status(int fd)>& write) {
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, kFileMode));
  if (!file) return FileStatus(errno, path);
  Status status = write(file.get());
  if (status.ok() && ::fsync(file.get()) != 0) status = FileStatus(errno, "fsync");
  // Some file systems (NFS) tell of a full disk only here.
  if (::close(file.release()) != 0 && status.ok()) status = FileStatus(errno, "close");
  if (status.ok()) return status;
  ::unlink(path.c_str());
  return {status.code(), path + ": " + status.message()};
}

constexpr size_t kMaxClaimBytes = 4096;

struct Claimant {
  std::string run;
  int64_t generation = 0;
  std::vector<std::string> before;  // runs that it took over from, the latest first
};

bool TookOverFrom(const Claimant& holder, const std::string& run) {
  return std::find(holder.before.begin(), holder.before.end(), run) != holder.before.end();
}

Claimant Successor(const Claimant& holder, const std::string& run, int64_t generation) {
  Claimant claimant{.run = run, .generation = generation, .before = holder.before};
  if (!holder.run.empty() && holder.run != run && !TookOverFrom(holder, holder.run)) {
    claimant.before.insert(claimant.before.begin(), holder.run);
  }
  return claimant;
}

// An unreadable claim, cut short by a crash, is nobody's.
Claimant ReadClaim(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  char text[kMaxClaimBytes];
  const ssize_t n = file ? ::read(file.get(), text, sizeof text) : -1;
  const std::string_view all(text, n > 0 ? static_cast<size_t>(n) : 0);
  const size_t end = all.find('\n');
  if (end == std::string_view::npos || !all.ends_with('\n')) return {};
  Claimant claimant{.run = std::string(all.substr(0, end))};
  std::istringstream lines{std::string(all.substr(end + 1))};
  std::string line;
  std::getline(lines, line);
  claimant.generation = std::strtoll(line.c_str(), nullptr, 10);
  while (std::getline(lines, line)) claimant.before.push_back(line);
  return claimant;
}

Status WriteClaim(const std::string& path, const Claimant& claimant) {
  std::string text = claimant.run + "\n" + std::to_string(claimant.generation) + "\n";
  for (const std::string& run : claimant.before) {
    if (text.size() + run.size() + 1 >= kMaxClaimBytes) break;
    text += run + "\n";
  }
  return WriteFile(path, O_EXCL, [&](int fd) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0) return FileStatus(errno, "write");
    return static_cast<size_t>(n) == text.size() ? Status()
                                                 : ResourceExhausted("write: no space for a few bytes");
  });
}

void CheckUsable(const std::string& path, const Snapshot& snapshot, const Signature& job) {
  const std::string difference = Difference(snapshot.signature, job);
  if (difference.empty()) return;
  throw BadModel(path + ": this checkpoint is of another job: " + difference +
                 "; give this job another checkpoint directory, or empty this one");
}

// Writes as a temporary file, lets `last_check` have its say, and gives it its name.
Result<Seal> WriteAtomically(const std::string& path, const Snapshot& snapshot,
                             const std::function<Status()>& last_check) {
  const std::string temporary = TemporaryName(path);
  Seal seal;
  LOCKSTEP_RETURN_IF_ERROR(WriteFile(temporary, O_TRUNC, [&](int fd) {
    const Result<Seal> written = WriteSnapshot(fd, snapshot);
    if (written.ok()) seal = *written;
    return written.status();
  }));
  Status status = last_check();
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) status = FileStatus(errno, path);
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  return seal;
}

Result<Snapshot> ReadFile(const std::string& path, Seal* seal = nullptr) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return FileStatus(errno, "open");
  return ReadSnapshot(file.get(), seal);
}

std::string PathOfPart(const std::string& folder, CheckpointId id, size_t number, size_t count) {
  return folder + "/" +
         PartName(id, {.number = static_cast<int64_t>(number), .count = static_cast<int64_t>(count)});
}

// Whether all parts are there, as long as they should be.
Status CheckParts(const std::string& folder, CheckpointId id, const std::vector<Seal>& seals) {
  for (size_t i = 0; i < seals.size(); ++i) {
    const std::string path = PathOfPart(folder, id, i, seals.size());
    std::error_code error;
    const uint64_t bytes = fs::file_size(path, error);
    if (error) return FileStatus(error.value(), path);
    if (bytes != seals[i].bytes) {
      return NotFound(path + ": " + std::to_string(bytes) + " bytes instead of " +
                      std::to_string(seals[i].bytes));
    }
  }
  return {};
}

// A checkpoint without its parts' values, with them.
Result<Snapshot> ReadParts(const std::string& folder, CheckpointId id, Snapshot index) {
  const std::vector<Seal> seals = index.parts;
  LOCKSTEP_RETURN_IF_ERROR(CheckParts(folder, id, seals));
  uint64_t bytes = 0;
  for (const Seal& seal : seals) bytes += seal.bytes;
  const Signature& signature = index.signature;
  // (Nobody is given more memory than there are bytes.)
  const uint64_t floats = static_cast<uint64_t>(signature.elements()) * (1 + signature.slots.size()) +
                          static_cast<uint64_t>(signature.state_elements());
  if (bytes / sizeof(float) < floats) return InvalidArgument("its parts are too short for its variables");
  Assembly assembly(std::move(index));
  for (size_t i = 0; i < seals.size(); ++i) {
    Seal seal;
    const Result<Snapshot> part = ReadFile(PathOfPart(folder, id, i, seals.size()), &seal);
    Status status = part.status();
    if (status.ok()) status = seal == seals[i] ? assembly.Add(*part) : InvalidArgument("it is another one");
    if (!status.ok()) {
      return Status(status.code(), "part " + std::to_string(i) + " of " + std::to_string(seals.size()) +
                                       ": " + status.message());
    }
  }
  return std::move(assembly).Finish();
}

// Throws BadModel when it is another job's.
Result<Snapshot> ReadWhole(const std::string& folder, CheckpointId id, const Signature& job) {
  const std::string path = folder + "/" + CheckpointName(id);
  Result<Snapshot> snapshot = ReadFile(path);
  if (!snapshot.ok()) return snapshot;
  CheckUsable(path, *snapshot, job);
  return snapshot->parts.empty() ? std::move(snapshot) : ReadParts(folder, id, std::move(*snapshot));
}

}  // namespace

Status Directory::Claim() {
  std::error_code error;
  fs::create_directories(options_.path, error);
  if (error) return FileStatus(error.value(), options_.path);
  std::replace(options_.run.begin(), options_.run.end(), '\n', ' ');

  constexpr int kTries = 100;  // each lost to another claimant
  Status lost;
  for (int i = 0; i < kTries; ++i) {
    const Result<Contents> contents = List(options_.path);
    if (!contents.ok()) return contents.status();
    Claimant holder;
    if (!contents->claims.empty()) {
      holder = ReadClaim(options_.path + "/" + ClaimName(contents->claims.front()));
      if (!options_.run.empty() && holder.run == options_.run && holder.generation > options_.generation) {
        return Aborted(options_.path + ": generation " + std::to_string(holder.generation) +
                       " writes here now; this is generation " + std::to_string(options_.generation));
      }
      if (!options_.run.empty() && holder.run != options_.run && TookOverFrom(holder, options_.run)) {
        return FailedPrecondition(options_.path + ": run " + holder.run +
                                  " of the job has taken over from this one, run " + options_.run);
      }
    }
    // (Ours still, where somebody emptied the folder.)
    const int64_t term = std::max(contents->latest_term() + 1, term_);
    const std::string claim = options_.path + "/" + ClaimName(term);
    const Status status = WriteClaim(claim, Successor(holder, options_.run, options_.generation));
    if (!status.ok()) {
      // Taken: by another claimant, whose claim may be gone again if yet another one was faster.
      if (status.code() != StatusCode::kInvalidArgument) return status;
      lost = status;
      continue;
    }
    term_ = term;
    for (const int64_t old : contents->claims) ::unlink((options_.path + "/" + ClaimName(old)).c_str());
    for (const auto& [id, name] : contents->temporaries) {
      if (id.term < term_) ::unlink((options_.path + "/" + name).c_str());
    }
    RemoveParts();
    return SyncFolder(options_.path);
  }
  return Unavailable(options_.path + ": others keep claiming it; at last: " + lost.message());
}

Status Directory::StillHolder() const {
  const Result<Contents> contents = List(options_.path);
  if (!contents.ok()) return contents.status();
  const int64_t latest = contents->claims.empty() ? 0 : contents->claims.front();
  if (latest == term_) return {};
  if (latest > term_) {
    return Aborted(options_.path + ": another generation writes here now; this is generation " +
                   std::to_string(options_.generation));
  }
  return NotFound(options_.path + ": " + ClaimName(term_) + " is gone");
}

Result<std::string> Directory::Save(const Snapshot& snapshot) {
  if (term_ == 0) LOCKSTEP_RETURN_IF_ERROR(Claim());
  Status holder = StillHolder();
  if (holder.code() == StatusCode::kNotFound) {  // somebody emptied the folder: it is ours all the same
    LOCKSTEP_RETURN_IF_ERROR(Claim());
    holder = StillHolder();
  }
  LOCKSTEP_RETURN_IF_ERROR(holder);

  const CheckpointId id{.term = term_, .step = snapshot.step};
  LOCKSTEP_RETURN_IF_ERROR(CheckParts(options_.path, id, snapshot.parts));
  const std::string path = options_.path + "/" + CheckpointName(id);
  LOCKSTEP_RETURN_IF_ERROR(WriteAtomically(path, snapshot, [this] { return StillHolder(); }).status());
  LOCKSTEP_RETURN_IF_ERROR(SyncFolder(options_.path));
  Prune();
  return path;
}

Result<Seal> Directory::SavePart(int64_t term, PartNumber part, const Snapshot& snapshot) const {
  const std::string path = options_.path + "/" + PartName({.term = term, .step = snapshot.step}, part);
  const Result<Seal> seal = WriteAtomically(path, snapshot, [] { return Status(); });
  LOCKSTEP_RETURN_IF_ERROR(seal.status());
  LOCKSTEP_RETURN_IF_ERROR(SyncFolder(options_.path));
  return seal;
}

void Directory::Prune() {
  const Result<Contents> contents = List(options_.path);
  if (!contents.ok() || contents->latest_term() > term_) return;
  const auto keep = static_cast<size_t>(std::max(options_.keep, 1));
  // What cannot be deleted now is tried again after the next checkpoint.
  // (First what names the parts, so that nothing ever names one that is gone.)
  for (size_t i = keep; i < contents->checkpoints.size(); ++i) {
    ::unlink((options_.path + "/" + CheckpointName(contents->checkpoints[i])).c_str());
  }
  RemoveParts();
}

// Of checkpoints that are gone or never came to be. Later ones of this term may be about to.
void Directory::RemoveParts() const {
  const Result<Contents> contents = List(options_.path);
  if (!contents.ok()) return;
  const std::vector<CheckpointId>& whole = contents->checkpoints;
  const CheckpointId begun{.term = term_};
  const CheckpointId newest = whole.empty() ? begun : std::max(begun, whole.front());
  for (const auto& [id, name] : contents->parts) {
    const bool named = std::binary_search(whole.begin(), whole.end(), id, std::greater<>());
    if (!named && id < newest) ::unlink((options_.path + "/" + name).c_str());
  }
}

std::optional<Directory::Loaded> Directory::LoadNewest(const Signature& job,
                                                       std::vector<std::string>* warnings) const {
  constexpr int kTries = 3;  // a writer may delete the old ones between the listing and the reading
  for (int i = 0; i < kTries; ++i) {
    const Result<Contents> contents = List(options_.path);
    if (contents.status().code() == StatusCode::kNotFound) return std::nullopt;
    if (!contents.ok()) throw BadData("checkpoints: " + contents.status().message());
    bool deleted = false;
    std::vector<std::string> skipped;
    for (const CheckpointId& id : contents->checkpoints) {
      const std::string path = options_.path + "/" + CheckpointName(id);
      Result<Snapshot> snapshot = ReadWhole(options_.path, id, job);
      if (!snapshot.ok()) {
        deleted = deleted || snapshot.status().code() == StatusCode::kNotFound;
        skipped.push_back(path + ": not used: " + snapshot.status().message());
        continue;
      }
      warnings->insert(warnings->end(), skipped.begin(), skipped.end());
      if (snapshot->signature.precision != job.precision) {
        warnings->push_back(path + ": was trained in " + snapshot->signature.precision +
                            ", the job goes on in " + job.precision);
      }
      return Loaded{std::move(*snapshot), path};
    }
    if (deleted && i + 1 < kTries) continue;
    warnings->insert(warnings->end(), skipped.begin(), skipped.end());
    return std::nullopt;
  }
  return std::nullopt;
}

Snapshot Directory::Load(const std::string& path, const Signature& job) {
  const fs::path file(path);
  const auto id = ParseCheckpointName(file.filename().string());
  Result<Snapshot> snapshot =
      id ? ReadWhole(file.parent_path().string(), *id, job) : InvalidArgument("not the name of a checkpoint");
  if (!snapshot.ok()) throw BadData(path + ": " + snapshot.status().message());
  return std::move(*snapshot);
}

}  // namespace lockstep::trainer::checkpoint
