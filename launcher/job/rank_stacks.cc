#include "launcher/job/rank_stacks.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <utility>

#include "common/cut_text.h"
#include "common/log.h"
#include "launcher/job/machine.h"
#include "launcher/job/run_folder.h"
#include "launcher/process/descendants.h"
#include "launcher/process/thread_states.h"

namespace lockstep::job {

namespace {

constexpr size_t kInnermost = 8;
constexpr size_t kMostLine = 200;
constexpr size_t kStatesInReport = 2;

bool IsPython(pid_t pid) {
  std::array<char, 4096> path;
  const std::string link = "/proc/" + std::to_string(pid) + "/exe";
  const ssize_t size = ::readlink(link.c_str(), path.data(), path.size());
  const std::string program(path.data(), size > 0 ? static_cast<size_t>(size) : 0);
  return program.find("python", program.rfind('/') + 1) != std::string::npos;
}

// The process to look at: a rank may be a script, or another wrapper, that waits for the one that trains.
pid_t TrainingProcess(pid_t rank) {
  if (IsPython(rank)) return rank;
  std::vector<pid_t> below = process::Descendants(rank);
  std::sort(below.begin(), below.end());
  const auto python = std::find_if(below.begin(), below.end(), IsPython);
  if (python != below.end()) return *python;
  return below.size() == 1 ? below.front() : rank;
}

// The main thread first, and no more of each than anybody reads.
std::vector<std::string> GdbCommand(const std::string& gdb, pid_t pid) {
  return {gdb, "-nx", "-batch", "-p", std::to_string(pid), "-ex", "thread apply all -ascending bt 64"};
}

std::vector<std::string> PySpyCommand(const std::string& py_spy, pid_t pid) {
  return {py_spy, "dump", "--pid", std::to_string(pid)};
}

std::string LastLine(const std::string& text) {
  std::string last = "nothing";
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find_first_not_of(" \r") != std::string::npos) last = std::move(line);
  }
  return last;
}

}  // namespace

std::vector<std::string> InnermostOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; lines.size() <= kInnermost && std::getline(stream, line);) {
    const bool thread = line.starts_with("Thread ");
    if (lines.empty() && !thread) continue;
    if (!lines.empty() && (thread || line.empty())) break;
    lines.push_back(CutText(std::move(line), kMostLine));
  }
  return lines;
}

// One rank's.
struct RankStacks::Look {
  Rank rank;
  std::vector<std::vector<std::string>> tools;  // still to be asked
  std::string tool;                             // that is being asked
  std::string text;                             // of the file
  std::vector<std::string> states;
  RankStack found;
  std::string advice;                                      // how to learn more the next time
  std::vector<std::unique_ptr<process::ProgramRun>> runs;  // destroyed from outside of their callbacks
};

RankStacks::RankStacks(EventLoop& loop, Options options) : loop_(loop), options_(std::move(options)) {}
RankStacks::~RankStacks() = default;

void RankStacks::Collect(const std::vector<Rank>& ranks, const std::string& why, Done done) {
  looks_.clear();
  stacks_.clear();
  done_ = std::move(done);
  const std::string gdb = FindProgram("gdb", options_.environment);
  const std::string py_spy = FindProgram("py-spy", options_.environment);
  for (const Rank& rank : ranks) {
    if (looks_.size() == kMost) break;
    Look& look = *looks_.emplace_back(std::make_unique<Look>());
    look.rank = rank;
    const pid_t pid = TrainingProcess(rank.pid);
    look.text =
        "rank " + std::to_string(rank.rank) + ", pid " + std::to_string(rank.pid) + ": " + why + "\n\n";
    if (pid != rank.pid) look.text += "below it, pid " + std::to_string(pid) + ":\n";
    look.states = process::ThreadStates(pid);
    for (const std::string& line : look.states) look.text += line + "\n";
    const bool python = IsPython(pid);
    if (python && !py_spy.empty()) look.tools.push_back(PySpyCommand(py_spy, pid));
    if (!gdb.empty()) look.tools.push_back(GdbCommand(gdb, pid));
    if (python && py_spy.empty()) look.advice = "install py-spy for its stack in lines of Python";
    if (!python && gdb.empty()) look.advice = "install gdb for its stack";
  }
  unfinished_ = looks_.size();
  if (looks_.empty()) return std::exchange(done_, nullptr)({});
  for (const auto& look : looks_) AskNext(*look);
}

void RankStacks::AskNext(Look& look) {
  if (look.tools.empty()) return Finish(look);
  process::Launch launch{.command = look.tools.front()};
  look.tools.erase(look.tools.begin());
  look.tool = launch.command.front().substr(launch.command.front().rfind('/') + 1);
  // No DEBUGINFOD_URLS: it would ask the network for symbols.
  for (const char* name : {"PATH", "HOME"}) {
    const auto found = options_.environment.find(name);
    if (found != options_.environment.end()) launch.environment.emplace_back(*found);
  }
  launch.environment.emplace_back("LC_ALL", "C");
  auto run = process::ProgramRun::Start(loop_, {.launch = std::move(launch),
                                                .limit = options_.limit,
                                                .most_bytes = kMostBytes,
                                                .on_end = [this, &look](std::string text, bool in_time) {
                                                  OnAnswer(look, std::move(text), in_time);
                                                }});
  if (!run.ok()) return OnAnswer(look, run.status().message(), /*in_time=*/true);
  look.runs.push_back(std::move(*run));
}

void RankStacks::OnAnswer(Look& look, std::string text, bool in_time) {
  look.text += "\n" + look.tool + (in_time ? "" : ", killed before its end") + ":\n" + text;
  if (!text.ends_with('\n')) look.text += '\n';
  std::vector<std::string> lines = InnermostOf(text);
  if (lines.empty()) {
    look.found.lines.push_back(
        look.tool + " cannot say: " +
        (in_time ? LastLine(text)
                 : "it took longer than " + std::to_string(options_.limit.count() / 1000) + " s"));
    return AskNext(look);
  }
  look.found.lines = std::move(lines);
  look.tools.clear();
  look.states.clear();  // less than these
  Finish(look);
}

void RankStacks::Finish(Look& look) {
  for (size_t i = 0; i < look.states.size() && i < kStatesInReport; ++i) {
    look.found.lines.insert(look.found.lines.begin() + static_cast<std::ptrdiff_t>(i), look.states[i]);
  }
  if (!look.advice.empty()) look.found.lines.push_back(std::move(look.advice));
  look.found.file = options_.folder + "/stack-rank-" + std::to_string(look.rank.rank) + ".txt";
  if (const Status written = WriteFile(look.found.file, look.text); !written.ok()) {
    log::Warning("stacks are not kept: " + written.message());
    look.found.file.clear();
  }
  stacks_[look.rank.pid] = std::move(look.found);
  if (--unfinished_ == 0) std::exchange(done_, nullptr)(std::move(stacks_));
}

}  // namespace lockstep::job
