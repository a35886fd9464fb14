#include "trainer/checkpoint/directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string_view>
#include <utility>

#include "common/unique_fd.h"
#include "trainer/checkpoint/directory_names.h"
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
  std::vector<CheckpointId> temporaries;
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
    if (const auto temporary = ParseTemporaryName(name)) contents.temporaries.push_back(*temporary);
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

struct Claimant {
  std::string run;
  int64_t generation = 0;
};

// An unreadable claim, cut short by a crash, is nobody's.
Claimant ReadClaim(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  char text[4096];
  const ssize_t n = file ? ::read(file.get(), text, sizeof text) : -1;
  const std::string_view all(text, n > 0 ? static_cast<size_t>(n) : 0);
  const size_t end = all.find('\n');
  if (end == std::string_view::npos || !all.ends_with('\n')) return {};
  const std::string generation(all.substr(end + 1));
  return {std::string(all.substr(0, end)), std::strtoll(generation.c_str(), nullptr, 10)};
}

Status WriteClaim(const std::string& path, const Claimant& claimant) {
  const std::string text = claimant.run + "\n" + std::to_string(claimant.generation) + "\n";
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

Result<Snapshot> ReadFile(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return FileStatus(errno, "open");
  return ReadSnapshot(file.get());
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
    if (!contents->claims.empty()) {
      const Claimant holder = ReadClaim(options_.path + "/" + ClaimName(contents->claims.front()));
      if (!options_.run.empty() && holder.run == options_.run && holder.generation > options_.generation) {
        return Aborted(options_.path + ": generation " + std::to_string(holder.generation) +
                       " writes here now; this is generation " + std::to_string(options_.generation));
      }
    }
    const int64_t term = contents->latest_term() + 1;
    const std::string claim = options_.path + "/" + ClaimName(term);
    const Status status = WriteClaim(claim, {options_.run, options_.generation});
    if (!status.ok()) {
      // Taken: by another claimant, whose claim may be gone again if yet another one was faster.
      if (status.code() != StatusCode::kInvalidArgument) return status;
      lost = status;
      continue;
    }
    term_ = term;
    for (const int64_t old : contents->claims) ::unlink((options_.path + "/" + ClaimName(old)).c_str());
    for (const CheckpointId& old : contents->temporaries) {
      if (old.term < term_) ::unlink((options_.path + "/" + TemporaryName(old)).c_str());
    }
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
  const std::string path = options_.path + "/" + CheckpointName(id);
  const std::string temporary = options_.path + "/" + TemporaryName(id);
  LOCKSTEP_RETURN_IF_ERROR(
      WriteFile(temporary, O_TRUNC, [&](int fd) { return WriteSnapshot(fd, snapshot); }));
  if (Status status = StillHolder(); !status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const Status status = FileStatus(errno, path);
    ::unlink(temporary.c_str());
    return status;
  }
  LOCKSTEP_RETURN_IF_ERROR(SyncFolder(options_.path));
  Prune();
  return path;
}

void Directory::Prune() {
  const Result<Contents> contents = List(options_.path);
  if (!contents.ok() || contents->latest_term() > term_) return;
  const auto keep = static_cast<size_t>(std::max(options_.keep, 1));
  // What cannot be deleted now is tried again after the next checkpoint.
  for (size_t i = keep; i < contents->checkpoints.size(); ++i) {
    ::unlink((options_.path + "/" + CheckpointName(contents->checkpoints[i])).c_str());
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
      Result<Snapshot> snapshot = ReadFile(path);
      if (!snapshot.ok()) {
        deleted = deleted || snapshot.status().code() == StatusCode::kNotFound;
        skipped.push_back(path + ": not used: " + snapshot.status().message());
        continue;
      }
      CheckUsable(path, *snapshot, job);
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
  Result<Snapshot> snapshot = ReadFile(path);
  if (!snapshot.ok()) throw BadData(path + ": " + snapshot.status().message());
  CheckUsable(path, *snapshot, job);
  return std::move(*snapshot);
}

}  // namespace lockstep::trainer::checkpoint
