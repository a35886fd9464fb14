#pragma once

#include <map>
#include <memory>
#include <string>

#include "common/status.h"
#include "launcher/pmix/fences.h"
#include "launcher/pmix/job_map.h"
#include "launcher/pmix/store_link.h"

namespace lockstep::pmix {

// A PMIx server for the ranks of one machine and one generation: by it MPI_Init finds out how many ranks
// there are and where, and the ranks tell one another how they are reached. One in a process; the library
// calls back on a thread of its own.
class Server {
 public:
  // Variables, for a client's environment.
  using Environment = std::map<std::string, std::string>;

  // `store` outlives it. kUnavailable: with PMIx's own words.
  static Result<std::unique_ptr<Server>> Start(const JobMap& map, StoreLink& store);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // What a rank of this machine must have to find the server.
  Result<Environment> EnvironmentOf(int rank) const;

 private:
  Server(const JobMap& map, StoreLink& store);

  Status Register();

  const JobMap map_;
  Fences fences_;

  friend struct Callbacks;
};

}  // namespace lockstep::pmix
