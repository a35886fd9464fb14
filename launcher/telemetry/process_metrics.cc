#include "launcher/telemetry/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>

namespace lockstep::telemetry {

namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

struct ProcessStat {
  double cpu_seconds = 0;
  double threads = 0;
  double start_seconds = 0;  // since the machine's start
  double virtual_bytes = 0;
  double resident_bytes = 0;
};

// /proc/self/stat; the numbers of the fields are those of proc(5).
std::optional<ProcessStat> ReadStat() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  const size_t end = line.rfind(')');
  if (end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(end + 1));
  std::string field;
  ProcessStat stat;
  const double ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  for (int number = 3; number <= 24 && fields >> field; ++number) {
    const double value = number == 3 ? 0 : std::stod(field);
    if (number == 14 || number == 15) stat.cpu_seconds += value / ticks;
    if (number == 20) stat.threads = value;
    if (number == 22) stat.start_seconds = value / ticks;
    if (number == 23) stat.virtual_bytes = value;
    if (number == 24) stat.resident_bytes = value * static_cast<double>(::sysconf(_SC_PAGESIZE));
  }
  return fields ? std::optional(stat) : std::nullopt;
}

double ClockSeconds(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

std::optional<double> CountOpenFiles() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), &::closedir);
  if (!folder) return std::nullopt;
  double count = -1;  // the folder's own
  while (const dirent* entry = ::readdir(folder.get())) count += entry->d_name[0] == '.' ? 0 : 1;
  return count;
}

MetricFamily Make(MetricType type, const char* name, const char* help, double value) {
  ClientMetric metric;
  metric.counter.value = value;
  metric.gauge.value = value;
  return {.name = name, .help = help, .type = type, .metric = {metric}};
}

}  // namespace

std::vector<MetricFamily> CollectProcessMetrics() {
  std::vector<MetricFamily> families;
  if (const auto stat = ReadStat()) {
    families.push_back(Make(MetricType::Counter, "process_cpu_seconds_total",
                            "User and system CPU time of the launcher itself.", stat->cpu_seconds));
    families.push_back(Make(MetricType::Gauge, "process_resident_memory_bytes",
                            "Resident memory of the launcher.", stat->resident_bytes));
    families.push_back(Make(MetricType::Gauge, "process_virtual_memory_bytes",
                            "Virtual memory of the launcher.", stat->virtual_bytes));
    families.push_back(Make(MetricType::Gauge, "process_threads", "Threads of the launcher.", stat->threads));
    // To the hundredth, so that one process has one value.
    const double started = ClockSeconds(CLOCK_REALTIME) - ClockSeconds(CLOCK_BOOTTIME) + stat->start_seconds;
    families.push_back(Make(MetricType::Gauge, "process_start_time_seconds",
                            "When the launcher started, in seconds since 1970.",
                            static_cast<double>(static_cast<int64_t>(started * 100)) / 100));
  }
  if (const auto count = CountOpenFiles()) {
    families.push_back(
        Make(MetricType::Gauge, "process_open_fds", "Open file descriptors of the launcher.", *count));
  }
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    families.push_back(Make(MetricType::Gauge, "process_max_fds",
                            "Limit on open file descriptors of the launcher.",
                            static_cast<double>(limit.rlim_cur)));
  }
  return families;
}

}  // namespace lockstep::telemetry
