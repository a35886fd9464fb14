#include "trainer/trace/part_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "common/unique_fd.h"

namespace lockstep::trainer::trace {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::nanoseconds;

int ProcessOf(const Owner& owner) { return owner.rank + 1; }
// Numbers of their own in the whole trace: some readers take a thread's for the machine's.
int ThreadOf(const Owner& owner, Track track) {
  return ProcessOf(owner) * (kTracks + 1) + static_cast<int>(track);
}

std::string Naming(const Owner& owner, Track track, const char* what, const char* key, const Json& value) {
  const Json event = {{"name", what},
                      {"ph", "M"},
                      {"pid", ProcessOf(owner)},
                      {"tid", ThreadOf(owner, track)},
                      {"args", {{key, value}}}};
  return event.dump() + "\n";
}

// Microseconds with three digits: a double of them since the machine's start would lose the last ones.
void AppendMicroseconds(std::string& to, const char* key, nanoseconds time) {
  char text[64];
  std::snprintf(text, sizeof text, ",\"%s\":%" PRId64 ".%03d", key, static_cast<int64_t>(time.count() / 1000),
                static_cast<int>(time.count() % 1000));
  to += text;
}

void AppendSpan(std::string& to, const Owner& owner, const Span& span) {
  to += R"({"name":")";
  to += span.name;
  to += R"(","cat":")";
  to += NameOf(span.track);
  to += R"(","ph":"X","pid":)" + std::to_string(ProcessOf(owner));
  to += ",\"tid\":" + std::to_string(ThreadOf(owner, span.track));
  AppendMicroseconds(to, "ts", span.begin.time_since_epoch() + owner.clock_offset);
  AppendMicroseconds(to, "dur", std::max<nanoseconds>(span.end - span.begin, nanoseconds(0)));
  to += ",\"args\":{\"step\":" + std::to_string(span.step);
  if (span.bucket >= 0) to += ",\"bucket\":" + std::to_string(span.bucket);
  if (span.bytes >= 0) to += ",\"bytes\":" + std::to_string(span.bytes);
  to += "}}\n";
}

}  // namespace

std::string PartOf(const Owner& owner, std::span<const Span> spans) {
  std::string name = "rank " + std::to_string(owner.rank) + " (" + owner.role + " " +
                     std::to_string(owner.role_rank) + ", " + owner.device + ")";
  std::string part = Naming(owner, Track::kSteps, "process_name", "name", name) +
                     Naming(owner, Track::kSteps, "process_sort_index", "sort_index", owner.rank);
  std::set<Track> tracks;
  for (const Span& span : spans) tracks.insert(span.track);
  for (const Track track : tracks) {
    part += Naming(owner, track, "thread_name", "name", NameOf(track));
    part += Naming(owner, track, "thread_sort_index", "sort_index", static_cast<int>(track));
  }
  for (const Span& span : spans) AppendSpan(part, owner, span);
  return part;
}

Status WritePart(const std::string& path, const Owner& owner, const Recorder& recorder) {
  const std::string part = PartOf(owner, recorder.Last());
  const std::string unfinished = path + ".part";
  UniqueFd file(::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file) return Status::FromErrno(errno, "trace: open " + unfinished);
  for (size_t done = 0; done < part.size();) {
    const ssize_t written = ::write(file.get(), part.data() + done, part.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const Status status = Status::FromErrno(errno, "trace: write " + unfinished);
      ::unlink(unfinished.c_str());
      return status;
    }
    done += static_cast<size_t>(written);
  }
  if (::rename(unfinished.c_str(), path.c_str()) != 0) {
    return Status::FromErrno(errno, "trace: rename " + unfinished);
  }
  return {};
}

}  // namespace lockstep::trainer::trace
