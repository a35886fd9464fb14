#include "launcher/ledger/device_ledger.h"

#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <thread>
#include <utility>

#include "launcher/ledger/claim_file.h"

namespace lockstep::ledger {
namespace {

constexpr auto kLockLimit = std::chrono::seconds(5);
constexpr auto kLockRetry = std::chrono::milliseconds(10);
constexpr size_t kMaxEntries = 65536;  // of the folder that are looked at
constexpr size_t kMaxClaims = 1024;    // live ones of a device
constexpr size_t kMaxNameBytes = 96;   // of a device in a file's name
constexpr char kPrefix[] = "lockstep-device-";
constexpr char kClaimEnding[] = ".claim";

// Older MIG UUIDs have slashes in them. Devices whose names come out the same would only share their lock:
// the claims themselves have the whole name.
std::string FileStem(const std::string& device) {
  std::string stem = device.substr(0, kMaxNameBytes);
  for (char& c : stem) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-') c = '_';
  }
  return kPrefix + stem;
}

std::string NameOf(uid_t uid) {
  std::array<char, 4096> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) {
    return found->pw_name;
  }
  return "uid " + std::to_string(uid);
}

Status Errno(const std::string& operation, const std::string& path) {
  return Status::FromErrno(errno, "device ledger: " + operation + " " + path);
}

// Nobody else can replace what is in it.
Status CheckFolder(const std::string& folder) {
  struct stat info {};
  if (::lstat(folder.c_str(), &info) != 0) return Errno("look at", folder);
  if (!S_ISDIR(info.st_mode)) return FailedPrecondition("device ledger: " + folder + " is no folder");
  if (info.st_uid != 0 && info.st_uid != ::geteuid()) {
    return FailedPrecondition("device ledger: " + folder + " belongs to " + NameOf(info.st_uid) +
                              ", who could replace what is in it");
  }
  const bool shared = (info.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  if (shared && (info.st_mode & S_ISVTX) == 0) {
    return FailedPrecondition("device ledger: " + folder +
                              " can be written by others and has no sticky bit (chmod +t)");
  }
  return {};
}

bool IsForEverybody(const char* folder) {
  struct stat info {};
  return ::lstat(folder, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == 0 &&
         (info.st_mode & S_IWOTH) != 0 && (info.st_mode & S_ISVTX) != 0;
}

// A plain file and no link to one, whatever a stranger may have put there.
Result<UniqueFd> OpenPlain(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file) return Errno("open", path);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return Errno("look at", path);
  if (!S_ISREG(info.st_mode)) return FailedPrecondition("device ledger: " + path + " is no plain file");
  return file;
}

// flock() works on a file that is open for reading, so that whoever made the lock file, all can lock it.
Result<UniqueFd> LockDevice(const std::string& folder, const std::string& device) {
  const std::string path = folder + "/" + FileStem(device) + ".lock";
  // Not O_CREAT on a file that may be there: fs.protected_regular refuses that for another user's.
  UniqueFd made(::open(path.c_str(), O_RDONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (made) {
    ::fchmod(made.get(), 0644);  // whatever the umask
  } else if (errno != EEXIST) {
    return Errno("make", path);
  }
  auto file = OpenPlain(path);
  if (!file.ok()) return file.status();
  const auto deadline = std::chrono::steady_clock::now() + kLockLimit;
  while (::flock(file->get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return Errno("lock", path);
    if (std::chrono::steady_clock::now() >= deadline) {
      return DeadlineExceeded("device ledger: somebody keeps " + path + " locked");
    }
    std::this_thread::sleep_for(kLockRetry);
  }
  return std::move(*file);
}

Result<std::string> ReadBounded(const UniqueFd& file, const std::string& path) {
  std::string text(kMaxClaimBytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::pread(file.get(), text.data() + size, text.size() - size, static_cast<off_t>(size));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Errno("read", path);
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  text.resize(size);
  return text;
}

struct FolderCloser {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

// The paths of the claims whose files' names are the device's, in a fixed order.
Result<std::vector<std::string>> ClaimFiles(const std::string& folder, const std::string& device) {
  const std::unique_ptr<DIR, FolderCloser> open(::opendir(folder.c_str()));
  if (open == nullptr) return Errno("read", folder);
  const std::string prefix = FileStem(device) + ".";
  std::vector<std::string> paths;
  size_t entries = 0;
  while (const dirent* entry = ::readdir(open.get())) {
    if (++entries > kMaxEntries) return ResourceExhausted("device ledger: too many files in " + folder);
    const std::string_view name = entry->d_name;
    if (name.starts_with(prefix) && name.ends_with(kClaimEnding))
      paths.push_back(folder + "/" + entry->d_name);
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// Empty: nobody holds it any more. What may not be read is no claim either: the file of a launcher that died
// while it made it, or of somebody who wants to stop all others without being named.
Result<std::vector<Claim>> ReadClaimFile(const std::string& path, bool remove_stale) {
  const auto file = OpenPlain(path);
  if (!file.ok()) {
    const StatusCode code = file.status().code();
    const bool none = code == StatusCode::kNotFound || code == StatusCode::kPermissionDenied;
    return none ? Result<std::vector<Claim>>(std::vector<Claim>()) : file.status();
  }
  if (::flock(file->get(), LOCK_SH | LOCK_NB) == 0) {
    if (remove_stale) ::unlink(path.c_str());  // another user's stays, and does no harm
    return std::vector<Claim>();
  }
  const auto text = ReadBounded(*file, path);
  if (!text.ok()) return text.status();
  auto claim = ReadClaim(*text);
  struct stat info {};
  if (::fstat(file->get(), &info) != 0) return Errno("look at", path);
  if (!claim.ok()) {
    return FailedPrecondition("device ledger: " + path + " of " + NameOf(info.st_uid) + " " +
                              claim.status().message());
  }
  claim->user = NameOf(info.st_uid);
  return std::vector<Claim>{std::move(*claim)};
}

Result<std::vector<Claim>> ReadAll(const std::string& folder, const std::string& device, bool remove_stale) {
  const auto paths = ClaimFiles(folder, device);
  if (!paths.ok()) return paths.status();
  std::vector<Claim> claims;
  for (const std::string& path : *paths) {
    auto read = ReadClaimFile(path, remove_stale);
    if (!read.ok()) return read.status();
    for (Claim& claim : *read) {
      if (claim.use.device == device) claims.push_back(std::move(claim));
    }
    if (claims.size() > kMaxClaims) return ResourceExhausted("device ledger: too many claims on " + device);
  }
  return claims;
}

Result<std::string> RandomName() {
  std::array<unsigned char, 8> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return Status::FromErrno(errno, "getrandom");
  }
  constexpr char kDigits[] = "0123456789abcdef";
  std::string name;
  for (const unsigned char byte : bytes) name += {kDigits[byte >> 4], kDigits[byte & 15]};
  return name;
}

Status WriteAll(const UniqueFd& file, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Errno("write", path);
    text.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

}  // namespace

Result<std::string> DeviceLedger::FolderFor(const std::string& given) {
  if (!given.empty()) {
    if (::mkdir(given.c_str(), 0700) != 0 && errno != EEXIST) return Errno("make", given);
    LOCKSTEP_RETURN_IF_ERROR(CheckFolder(given));
    return given;
  }
  // No folder below these: its maker could remove what others put there.
  for (const char* folder : {"/run/lock", "/tmp"}) {
    if (IsForEverybody(folder)) return std::string(folder);
  }
  return NotFound("device ledger: neither /run/lock nor /tmp is a folder for all users");
}

Result<DeviceLedger> DeviceLedger::Acquire(const Options& options, const std::vector<Use>& uses,
                                           std::vector<std::string>& overruled) {
  DeviceLedger ledger;
  std::vector<Use> sorted = uses;  // all launchers lock in the same order
  std::sort(sorted.begin(), sorted.end(),
            [](const Use& a, const Use& b) { return FileStem(a.device) < FileStem(b.device); });
  std::vector<UniqueFd> locks;
  std::string last;
  for (const Use& use : sorted) {
    if (FileStem(use.device) == last) continue;  // two that come out the same would wait for one another
    last = FileStem(use.device);
    auto lock = LockDevice(options.folder, use.device);
    if (!lock.ok()) return lock.status();
    locks.push_back(std::move(*lock));
  }
  for (const Use& use : sorted) {
    const auto held = ReadAll(options.folder, use.device, /*remove_stale=*/true);
    const Status fits = held.ok() ? CheckFits(use, *held) : held.status();
    if (fits.ok()) continue;
    if (!options.force) return fits;
    overruled.push_back(fits.message());
  }
  for (const Use& use : sorted) {
    LOCKSTEP_RETURN_IF_ERROR(ledger.Add(options.folder, {.use = use,
                                                         .job = options.job,
                                                         .namespace_name = options.namespace_name,
                                                         .pid = static_cast<int>(::getpid()),
                                                         .since = std::chrono::system_clock::now()}));
  }
  return ledger;
}

Status DeviceLedger::Add(const std::string& folder, const Claim& claim) {
  const auto random = RandomName();
  if (!random.ok()) return random.status();
  const std::string path = folder + "/" + FileStem(claim.use.device) + "." + *random + kClaimEnding;
  // Locked and written before others may open it.
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return Errno("make", path);
  held_.push_back({path, std::move(file)});
  const UniqueFd& made = held_.back().file;
  if (::flock(made.get(), LOCK_EX) != 0) return Errno("lock", path);
  LOCKSTEP_RETURN_IF_ERROR(WriteAll(made, WriteClaim(claim), path));
  if (::fchmod(made.get(), 0644) != 0) return Errno("open to all", path);
  return {};
}

DeviceLedger& DeviceLedger::operator=(DeviceLedger&& other) noexcept {
  if (this == &other) return *this;
  Release();
  held_ = std::move(other.held_);
  return *this;
}

DeviceLedger::~DeviceLedger() { Release(); }

void DeviceLedger::Release() {
  // The name first: who opens the file in between finds it locked still.
  for (const Held& held : held_) ::unlink(held.path.c_str());
  held_.clear();
}

Result<std::vector<Claim>> ReadClaims(const std::string& folder, const std::string& device) {
  return ReadAll(folder, device, /*remove_stale=*/false);
}

}  // namespace lockstep::ledger
