#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace lockstep::pmix {

// Which ranks of a generation run where, as the launcher tells the server (job/mpi_server.h).
struct JobMap {
  std::string name_space;  // names this generation of the job among all on the machine; at most 255 bytes
  std::string folder;      // where the server and its clients keep sockets and shared files
  // The number of ranks of each machine, in the order of rank: the first one's come before the second's.
  std::vector<int> machines;
  size_t self = 0;       // which of them this is
  bool horovod = false;  // serve also what Horovod's Gloo asks for

  int size() const;
  int first_rank(size_t machine) const;
  // The machine of a rank.
  size_t machine_of(int rank) const;
};

// From JSON, {"nameSpace", "folder", "machines": [2, 2], "self": 0, "horovod": false}. kInvalidArgument names
// what is wrong.
Result<JobMap> ParseJobMap(std::string_view text);
std::string FormatJobMap(const JobMap& map);

}  // namespace lockstep::pmix
