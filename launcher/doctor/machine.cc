#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>

#include <cmath>
#include <cstdio>

#include "launcher/doctor/doctor.h"
#include "launcher/placement/discover.h"
#include "launcher/placement/text_files.h"
#include "launcher/telemetry/text_format.h"

namespace lockstep::doctor {

namespace {

using telemetry::FormatBytes;

// Docker gives 64 MiB where nobody asks for more; NCCL, data loaders and our own rings want more than that.
constexpr int64_t kEnoughSharedMemory = int64_t{1} << 30;
constexpr rlim_t kEnoughFiles = 4096;
constexpr int64_t kEnoughDisk = int64_t{1} << 30;

Finding Processors(const placement::Inventory& inventory) {
  const int cores = placement::UsableCores(inventory);
  std::string what = std::to_string(cores) + (cores == 1 ? " core" : " cores") + " for arithmetic, " +
                     std::to_string(inventory.cpus.size()) + " logical processors";
  if (!inventory.cpu_model.empty()) what += ", " + inventory.cpu_model;
  if (!placement::QuotaIsTight(inventory)) return {Level::kFine, "processors", what};
  char quota[32];
  std::snprintf(quota, sizeof quota, "%g", *inventory.cpu_quota);
  return {Level::kWarning, "processors",
          what + "; a quota grants the time of " + quota + " of them: all ranks halt when it is used up",
          "give the container whole processors (docker run --cpuset-cpus, requests equal to limits under the "
          "static CPU manager), or as much quota as it sees processors"};
}

Finding Memory(const placement::Inventory& inventory) {
  std::string what = FormatBytes(placement::UsableMemory(inventory));
  if (inventory.memory_limit) what += " by a limit, of " + FormatBytes(inventory.memory_bytes);
  return {Level::kFine, "memory", what};
}

Finding SharedMemory(const std::filesystem::path& root) {
  const std::string path = (root / "dev/shm").string();
  const std::string fix =
      "docker run --shm-size=8g or --ipc=host; in a pod an emptyDir with medium: Memory at /dev/shm, which "
      "the operator's pods have";
  struct statvfs space {};
  if (::statvfs(path.c_str(), &space) != 0) {
    return {Level::kFault, "/dev/shm", "is not there: processes of a machine cannot share memory", fix};
  }
  const auto size = static_cast<int64_t>(space.f_blocks * space.f_frsize);
  const auto left = static_cast<int64_t>(space.f_bavail * space.f_frsize);
  const std::string what = FormatBytes(left) + " free of " + FormatBytes(size);
  if (left >= kEnoughSharedMemory) return {Level::kFine, "/dev/shm", what};
  return {Level::kWarning, "/dev/shm",
          what + ": NCCL and data loaders end with SIGBUS where it does not suffice",
          size >= kEnoughSharedMemory ? "remove what fills it" : fix};
}

Finding OpenFiles() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const std::string what = std::to_string(limit.rlim_max) + " at most";
  if (limit.rlim_max >= kEnoughFiles) return {Level::kFine, "open files", what};
  return {Level::kWarning, "open files", what + ": too few for data loaders of many processes",
          "raise the hard limit: docker run --ulimit nofile=1048576, LimitNOFILE= of the service"};
}

// Only InfiniBand and RoCE need it, which register the memory that they send.
Finding LockedMemory(const std::filesystem::path& root) {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const bool unlimited = limit.rlim_cur == RLIM_INFINITY;
  const std::string what =
      unlimited ? "unlimited" : FormatBytes(static_cast<int64_t>(limit.rlim_cur)) + " at most";
  std::error_code error;
  const bool verbs = !std::filesystem::is_empty(root / "sys/class/infiniband", error) && !error;
  if (unlimited || !verbs) return {Level::kFine, "locked memory", what};
  return {Level::kWarning, "locked memory",
          what + ", and there is InfiniBand: NCCL cannot register its buffers",
          "docker run --ulimit memlock=-1; LimitMEMLOCK=infinity of the service; IPC_LOCK in a pod"};
}

Finding Disk() {
  std::error_code error;
  const auto folder = std::filesystem::temp_directory_path(error);
  const auto space = std::filesystem::space(folder, error);
  if (error)
    return {Level::kFault, "disk", "no folder for temporary files: " + error.message(), "set TMPDIR"};
  const auto left = static_cast<int64_t>(space.available);
  const std::string what = FormatBytes(left) + " free in " + folder.string();
  if (left >= kEnoughDisk) return {Level::kFine, "disk", what};
  return {Level::kWarning, "disk", what, "make room, or set TMPDIR to a larger disk"};
}

// Curves and logs of several machines are put side by side by their clocks.
Finding Clock() {
  timex state{};
  const int result = ::adjtimex(&state);
  if (result < 0) return {Level::kFine, "clock", "cannot be asked about"};
  if (result != TIME_ERROR && (state.status & STA_UNSYNC) == 0) {
    return {Level::kFine, "clock",
            "synchronised, to " + std::to_string((state.maxerror + 999) / 1000) + " ms"};
  }
  return {Level::kWarning, "clock", "is not synchronised: times of several machines cannot be compared",
          "run chrony or systemd-timesyncd"};
}

}  // namespace

std::vector<Finding> ExamineMachine(const std::filesystem::path& root) {
  placement::DiscoverOptions options;
  options.root = root;
  options.gpus = false;
  const placement::Inventory inventory = placement::Discover(options);
  return {Processors(inventory),
          Memory(inventory),
          SharedMemory(root),
          OpenFiles(),
          LockedMemory(root),
          Disk(),
          Clock()};
}

std::vector<Finding> ExamineForFrameworks(const Options& options, const std::string& driver_version) {
  std::vector<Finding> findings = {SharedMemory(options.root), LockedMemory(options.root)};
  if (!driver_version.empty()) findings.push_back(ExamineDriver(driver_version, options.environment));
  return findings;
}

}  // namespace lockstep::doctor
