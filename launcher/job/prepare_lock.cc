#include "launcher/job/prepare_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/contract/digest.h"

namespace lockstep::job {

namespace {

constexpr size_t kDigestDigits = 16;

// Of the same words in the same folder, whatever shell they were given in. Secrets leave no trace in it: of
// files with variables it has the names.
std::string NameOf(const placement::Preparation& preparation) {
  std::string text = std::to_string(::geteuid()) + '\0' + preparation.working_directory + '\0';
  for (const std::string& word : preparation.command) text += word + '\0';
  for (const auto& [name, value] : preparation.from_manifest) text += name + '=' + value + '\0';
  std::error_code error;
  for (const std::string& file : preparation.environment_files) {
    text += std::filesystem::absolute(file, error).string() + '\0';
  }
  return "lockstep-prepare-" + contract::Digest(text).substr(0, kDigestDigits) + ".lock";
}

}  // namespace

Result<PrepareLock> PrepareLock::Open(const std::string& folder, const placement::Preparation& preparation) {
  std::string path = folder + "/" + NameOf(preparation);
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!file) return Status::FromErrno(errno, "open " + path);
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) return Status::FromErrno(errno, "stat " + path);
  if (!S_ISREG(facts.st_mode) || facts.st_uid != ::geteuid()) {
    return FailedPrecondition(path + " is not a file of this user");
  }
  PrepareLock lock(std::move(path), std::move(file));
  Result<std::string> before = lock.LastRun();
  LOCKSTEP_RETURN_IF_ERROR(before.status());
  lock.before_ = std::move(*before);
  return lock;
}

Result<bool> PrepareLock::Try() {
  if (::flock(file_.get(), LOCK_EX | LOCK_NB) == 0) return true;
  if (errno == EWOULDBLOCK || errno == EINTR) return false;
  return Status::FromErrno(errno, "lock " + path_);
}

Result<bool> PrepareLock::DoneMeanwhile() const {
  const Result<std::string> now = LastRun();
  LOCKSTEP_RETURN_IF_ERROR(now.status());
  return *now != before_;
}

Status PrepareLock::MarkDone() {
  // No other run of this user can have the same.
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::string run = std::to_string(::getpid()) + " " + std::to_string(now.count()) + "\n";
  if (::ftruncate(file_.get(), 0) != 0 ||
      ::pwrite(file_.get(), run.data(), run.size(), 0) != static_cast<ssize_t>(run.size())) {
    return Status::FromErrno(errno, "write " + path_);
  }
  return {};
}

Result<std::string> PrepareLock::LastRun() const {
  std::array<char, 64> text;
  const ssize_t size = ::pread(file_.get(), text.data(), text.size(), 0);
  if (size < 0) return Status::FromErrno(errno, "read " + path_);
  return std::string(text.data(), static_cast<size_t>(size));
}

}  // namespace lockstep::job
