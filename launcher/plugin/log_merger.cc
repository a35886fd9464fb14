#include "launcher/plugin/log_merger.h"

#include <algorithm>
#include <utility>

namespace lockstep::plugin {

int LogMerger::Open(std::string name) {
  const std::lock_guard lock(mutex_);
  sources_[next_number_].name = std::move(name);
  return next_number_++;
}

bool LogMerger::Add(int source, LogLine line) {
  std::unique_lock lock(mutex_);
  Source& into = sources_[source];
  taken_.wait(lock, [&] { return stopped_ || (into.lines.size() < kMostLines && into.bytes < kMostBytes); });
  if (stopped_) return false;
  into.bytes += line.text.size();
  into.lines.push_back({.line = std::move(line), .since = Clock::now()});
  added_.notify_one();
  return true;
}

void LogMerger::Close(int source) {
  const std::lock_guard lock(mutex_);
  const auto found = sources_.find(source);
  found->second.open = false;
  if (found->second.lines.empty()) sources_.erase(found);
  added_.notify_one();
}

void LogMerger::Finish() {
  const std::lock_guard lock(mutex_);
  finished_ = true;
  added_.notify_one();
}

void LogMerger::Stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  taken_.notify_all();
  added_.notify_one();
}

std::optional<LogMerger::Line> LogMerger::Next() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    auto first = sources_.end();
    bool complete = true;
    std::optional<Clock::time_point> longest_waiting;
    for (auto each = sources_.begin(); each != sources_.end(); ++each) {
      if (each->second.lines.empty()) {
        complete = false;
        continue;
      }
      const Waiting& head = each->second.lines.front();
      if (first == sources_.end() || head.line.time < first->second.lines.front().line.time) first = each;
      longest_waiting = std::min(longest_waiting.value_or(head.since), head.since);
    }
    if (first == sources_.end()) {
      if (finished_ && sources_.empty()) return std::nullopt;
      added_.wait(lock);
      continue;
    }
    if (!complete && !patience_) {
      added_.wait(lock);
      continue;
    }
    if (!complete && Clock::now() < *longest_waiting + *patience_) {
      added_.wait_until(lock, *longest_waiting + *patience_);
      continue;
    }
    Source& source = first->second;
    Line line{.source = source.name, .line = std::move(source.lines.front().line)};
    source.lines.pop_front();
    source.bytes -= line.line.text.size();
    if (!source.open && source.lines.empty()) sources_.erase(first);
    taken_.notify_all();
    return line;
  }
  return std::nullopt;
}

}  // namespace lockstep::plugin
