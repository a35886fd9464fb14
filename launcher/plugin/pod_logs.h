#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/kube/client.h"

namespace lockstep::plugin {

struct LogOptions {
  kube::ObjectName name;
  std::optional<int> rank = {};     // only its lines
  std::optional<int> replica = {};  // only of pods with this index
  bool follow = false;
  std::optional<int64_t> tail = {};  // the last lines of each pod
  bool timestamps = false;
  size_t most_pods = 64;  // at once: each has a connection and a thread
};

struct LogSinks {
  // A line with its newline. False: nobody reads any more. On the calling thread.
  std::function<bool(std::string_view line)> write;
  // A log that cannot be had, in one sentence. On any thread.
  std::function<void(const std::string& problem)> complain;
};

// The logs of the newest attempt's pods as one, by time: a rank's lines as they are ("[rank 3] …"), an
// agent's own with the name of its replica in front ("[worker-1] …"). With `follow` until the job is over,
// with the pods and attempts that come meanwhile; a connection that breaks is made anew and no line is shown
// twice.
//
// Stops the client, whatever comes of it. kNotFound: no such job; kResourceExhausted: more pods than are read
// at once.
Status ShowLogs(kube::Client& client, const LogOptions& options, const LogSinks& sinks);

}  // namespace lockstep::plugin
