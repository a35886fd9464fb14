#include "launcher/telemetry/trace_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

namespace lockstep::telemetry {

namespace {

namespace fs = std::filesystem;

constexpr char kPartSuffix[] = ".jsonl";

// By name; not what a rank was about to write when it was killed.
std::vector<fs::path> PartsIn(const std::string& folder) {
  std::vector<fs::path> parts;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == kPartSuffix) parts.push_back(entry.path());
  }
  std::sort(parts.begin(), parts.end());
  return parts;
}

}  // namespace

Status ClearTraceParts(const std::string& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return Status::FromErrno(errno, "trace: make " + folder);
  }
  return {};
}

Result<int> MergeTrace(const std::string& folder, const std::string& file, const TraceInfo& info) {
  const std::vector<fs::path> parts = PartsIn(folder);
  std::error_code error;
  if (parts.empty()) {
    fs::remove_all(folder, error);
    return 0;
  }
  const std::string unfinished = file + ".part";
  // (As all of the run's folder: for the user alone.)
  const mode_t mask = ::umask(0077);
  std::ofstream out(unfinished, std::ios::binary | std::ios::trunc);
  ::umask(mask);
  const nlohmann::ordered_json about = {{"job", info.job}, {"run", info.run}, {"steps", info.steps}};
  out << R"({"displayTimeUnit":"ms","otherData":)"
      << about.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << ",\"traceEvents\":[";
  const char* before = "\n";
  for (const fs::path& part : parts) {
    std::ifstream in(part, std::ios::binary);
    for (std::string line; std::getline(in, line);) {
      if (line.empty()) continue;
      out << before << line;
      before = ",\n";
    }
  }
  out << "\n]}\n";
  out.close();
  if (!out) {
    fs::remove(unfinished, error);
    return Internal("write " + unfinished + ": no room, or no right to");
  }
  fs::rename(unfinished, file, error);
  if (error) return Status::FromErrno(error.value(), "rename " + unfinished);
  fs::remove_all(folder, error);
  return static_cast<int>(parts.size());
}

}  // namespace lockstep::telemetry
