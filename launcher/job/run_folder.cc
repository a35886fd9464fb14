#include "launcher/job/run_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "common/unique_fd.h"

namespace lockstep::job {

namespace fs = std::filesystem;

namespace {

Result<fs::path> AllRuns() {
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state == '/') {
    return fs::path(state) / "lockstep/runs";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
    return fs::path(home) / ".local/state/lockstep/runs";
  }
  return FailedPrecondition(
      "neither HOME nor XDG_STATE_HOME is set: say where to keep the run's files with --run-dir");
}

// Sorts by time; two launchers started in the same second differ in their pids.
std::string NewName() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[64];
  std::snprintf(text, sizeof text, "%04d%02d%02dT%02d%02d%02dZ-%d", parts.tm_year + 1900, parts.tm_mon + 1,
                parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, static_cast<int>(::getpid()));
  return text;
}

// Runs that are under way have the newest names, so that only old ones go.
void Prune(const fs::path& runs) {
  std::error_code error;
  std::vector<fs::path> names;
  for (const auto& entry : fs::directory_iterator(runs, error)) names.push_back(entry.path());
  std::sort(names.begin(), names.end());
  for (size_t i = 0; i + RunFolder::kKept < names.size(); ++i) fs::remove_all(names[i], error);
}

}  // namespace

Result<RunFolder> RunFolder::Create(const std::string& path, const std::string& job) {
  fs::path folder = path;
  if (path.empty()) {
    const Result<fs::path> runs = AllRuns();
    if (!runs.ok()) return runs.status();
    folder = *runs / job / NewName();
  }
  std::error_code error;
  folder = fs::absolute(folder, error);
  fs::create_directories(folder.parent_path(), error);
  if (!error && ::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    error.assign(errno, std::generic_category());
  if (!error && !fs::is_directory(folder, error)) error = std::make_error_code(std::errc::not_a_directory);
  if (error) return Status::FromErrno(error.value(), "the run's folder " + folder.string());
  if (path.empty()) Prune(folder.parent_path());
  return RunFolder(folder.string());
}

Result<std::vector<std::string>> NewestRuns(const std::string& job, size_t most) {
  const Result<fs::path> runs = AllRuns();
  if (!runs.ok()) return runs.status();
  std::vector<fs::path> found;
  std::error_code error;
  const auto add_runs_of = [&](const fs::path& folder) {
    for (const auto& run : fs::directory_iterator(folder, error)) found.push_back(run.path());
  };
  if (job.empty()) {
    for (const auto& each : fs::directory_iterator(*runs, error)) add_runs_of(each.path());
  } else {
    add_runs_of(*runs / job);
  }
  std::sort(found.begin(), found.end(),
            [](const fs::path& a, const fs::path& b) { return a.filename() > b.filename(); });
  if (found.size() > most) found.resize(most);
  return std::vector<std::string>(found.begin(), found.end());
}

std::string AddressOfRun(const std::string& folder) {
  std::ifstream file(folder + "/http-address");
  std::string address;
  std::getline(file, address);
  return address;
}

Status WriteFile(const std::string& path, const std::string& contents) {
  const std::string part = path + ".part";
  UniqueFd file(::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file) return Status::FromErrno(errno, "open " + part);
  for (size_t done = 0; done < contents.size();) {
    const ssize_t written = ::write(file.get(), contents.data() + done, contents.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const Status status = Status::FromErrno(errno, "write " + part);
      ::unlink(part.c_str());
      return status;
    }
    done += static_cast<size_t>(written);
  }
  if (::rename(part.c_str(), path.c_str()) != 0) return Status::FromErrno(errno, "rename " + part);
  return {};
}

}  // namespace lockstep::job
