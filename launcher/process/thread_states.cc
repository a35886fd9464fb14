#include "launcher/process/thread_states.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "launcher/process/exit_report.h"

namespace lockstep::process {

namespace {

namespace fs = std::filesystem;

std::string FirstLine(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

// Of "PID (COMM) STATE …"; COMM may hold anything.
std::string StateInWords(const std::string& stat) {
  const size_t end = stat.rfind(") ");
  switch (end == std::string::npos || end + 2 >= stat.size() ? '?' : stat[end + 2]) {
    case 'R':
      return "runs";
    case 'S':
      return "sleeps";
    case 'D':
      return "waits for a disk or a driver";
    case 'T':
      return "is stopped by a signal";
    case 't':
      return "is stopped by a debugger";
    case 'Z':
    case 'X':
      return "has ended";
    default:
      return "is in an unknown state";
  }
}

std::string InWords(const fs::path& thread) {
  std::string text = "thread " + thread.filename().string() + " (" + Printable(FirstLine(thread / "comm")) +
                     "): " + StateInWords(FirstLine(thread / "stat"));
  const std::string function = FirstLine(thread / "wchan");
  if (!function.empty() && function != "0") text += ", in " + function;
  // "202 0x7f… …", "-1 …" outside of any, or "running".
  const std::string call = FirstLine(thread / "syscall");
  if (!call.empty() && call.front() >= '0' && call.front() <= '9') {
    text += ", system call " + call.substr(0, call.find(' '));
  }
  return text;
}

}  // namespace

std::vector<std::string> ThreadStates(pid_t pid) {
  std::vector<fs::path> threads;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(pid) + "/task", error)) {
    threads.push_back(entry.path());
  }
  const auto number = [](const fs::path& thread) { return std::atoi(thread.filename().c_str()); };
  std::sort(threads.begin(), threads.end(),
            [&](const fs::path& a, const fs::path& b) { return number(a) < number(b); });
  std::vector<std::string> lines;
  for (const fs::path& thread : threads) {
    if (lines.size() == kMostThreadsTold) {
      lines.push_back("and " + std::to_string(threads.size() - kMostThreadsTold) + " threads more");
      break;
    }
    lines.push_back(InWords(thread));
  }
  return lines;
}

}  // namespace lockstep::process
