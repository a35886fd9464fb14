#include "launcher/pmix/server.h"

#include <pmix.h>
#include <pmix_server.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <future>
#include <utility>
#include <vector>

#include "launcher/pmix/info_list.h"

namespace lockstep::pmix {

namespace {

// The library's callbacks carry no pointer of ours.
Server* running = nullptr;

Status Checked(pmix_status_t status, const char* call) {
  if (status == PMIX_SUCCESS || status == PMIX_OPERATION_SUCCEEDED) return {};
  return Unavailable(std::string("PMIx: ") + call + ": " + PMIx_Error_string(status));
}

// Calls that end on the library's thread.
template <typename Call>
Status Await(const char* name, const Call& call) {
  std::promise<pmix_status_t> ended;
  const auto end = [](pmix_status_t status, void* promise) {
    static_cast<std::promise<pmix_status_t>*>(promise)->set_value(status);
  };
  const pmix_status_t begun = call(+end, &ended);
  return Checked(begun == PMIX_SUCCESS ? ended.get_future().get() : begun, name);
}

std::string MachineName(size_t machine) { return "machine-" + std::to_string(machine); }

pmix_proc_t ProcessOf(const JobMap& map, int rank) {
  pmix_proc_t process;
  PMIX_LOAD_PROCID(&process, map.name_space.c_str(), static_cast<pmix_rank_t>(rank));
  return process;
}

}  // namespace

// What the library asks of its host. What is not here (PMIx_Spawn, PMIx_Publish …) it refuses itself.
struct Callbacks {
  static pmix_status_t Connected(const pmix_proc_t*, void*, pmix_op_cbfunc_t, void*) {
    // Told to the launcher once.
    static std::atomic<bool> told = false;
    if (!told.exchange(true)) {
      std::puts("connected");
      std::fflush(stdout);
    }
    return PMIX_OPERATION_SUCCEEDED;
  }

  static pmix_status_t Finalized(const pmix_proc_t*, void*, pmix_op_cbfunc_t, void*) {
    return PMIX_OPERATION_SUCCEEDED;
  }

  // MPI_Abort. The rank ends itself when it has told us, and then the launcher ends the others.
  static pmix_status_t Abort(const pmix_proc_t* process, void*, int status, const char message[],
                             pmix_proc_t[], size_t, pmix_op_cbfunc_t, void*) {
    std::fprintf(stderr, "rank %u called MPI_Abort with %d%s%s\n", process->rank, status,
                 message != nullptr && *message != '\0' ? ": " : "", message != nullptr ? message : "");
    return PMIX_OPERATION_SUCCEEDED;
  }

  static pmix_status_t Fence(const pmix_proc_t processes[], size_t count, const pmix_info_t[], size_t,
                             char* data, size_t size, pmix_modex_cbfunc_t done, void* context) {
    std::vector<int> ranks;
    for (size_t i = 0; i < count; ++i) {
      if (processes[i].rank == PMIX_RANK_WILDCARD) {
        ranks.clear();
        break;
      }
      ranks.push_back(static_cast<int>(processes[i].rank));
    }
    std::string contribution(data == nullptr ? "" : data, data == nullptr ? 0 : size);
    std::free(data);
    running->fences_.Enter(ranks, std::move(contribution), [done, context](const Result<std::string>& all) {
      if (!all.ok()) {
        std::fprintf(stderr, "a fence of MPI's ranks: %s\n", all.status().message().c_str());
        return done(PMIX_ERR_LOST_CONNECTION, nullptr, 0, context, nullptr, nullptr);
      }
      auto* kept = new std::string(*all);
      done(
          PMIX_SUCCESS, kept->data(), kept->size(), context,
          [](void* text) { delete static_cast<std::string*>(text); }, kept);
    });
    return PMIX_SUCCESS;
  }
};

Server::Server(const JobMap& map, StoreLink& store) : map_(map), fences_(map, store) { running = this; }

Result<std::unique_ptr<Server>> Server::Start(const JobMap& map, StoreLink& store) {
  std::unique_ptr<Server> server(new Server(map, store));
  pmix_server_module_t callbacks{};
  callbacks.client_connected = Callbacks::Connected;
  callbacks.client_finalized = Callbacks::Finalized;
  callbacks.abort = Callbacks::Abort;
  callbacks.fence_nb = Callbacks::Fence;
  InfoList options;
  options.Add(PMIX_SERVER_TMPDIR, map.folder);
  options.Add(PMIX_SYSTEM_TMPDIR, map.folder);
  options.Add(PMIX_HOSTNAME, MachineName(map.self));
  pmix_data_array_t& array = options.Convert();
  LOCKSTEP_RETURN_IF_ERROR(
      Checked(PMIx_server_init(&callbacks, static_cast<pmix_info_t*>(array.array), array.size), "init"));
  LOCKSTEP_RETURN_IF_ERROR(server->Register());
  return server;
}

// (The process ends with it: what the library holds goes with that, and its finalize waits for its clients.)
Server::~Server() { running = nullptr; }

// "Registration: Fully compliant (required)" of the PMIx Standard, 4.2.
Status Server::Register() {
  const auto size = static_cast<uint32_t>(map_.size());
  const auto here = static_cast<uint32_t>(map_.machines[map_.self]);
  const int first = map_.first_rank(map_.self);
  std::string names, ranks, local;
  for (size_t machine = 0; machine < map_.machines.size(); ++machine) {
    names += (machine > 0 ? "," : "") + MachineName(machine);
    ranks += machine > 0 ? ";" : "";
    for (int i = 0; i < map_.machines[machine]; ++i) {
      const std::string rank = std::to_string(map_.first_rank(machine) + i);
      ranks += (i > 0 ? "," : "") + rank;
      if (machine == map_.self) local += (i > 0 ? "," : "") + rank;
    }
  }
  char* node_map = nullptr;
  char* process_map = nullptr;
  LOCKSTEP_RETURN_IF_ERROR(Checked(PMIx_generate_regex(names.c_str(), &node_map), "generate_regex"));
  LOCKSTEP_RETURN_IF_ERROR(Checked(PMIx_generate_ppn(ranks.c_str(), &process_map), "generate_ppn"));

  InfoList job;
  job.Add(PMIX_JOBID, map_.name_space);
  job.Add(PMIX_UNIV_SIZE, size);
  job.Add(PMIX_JOB_SIZE, size);
  job.Add(PMIX_MAX_PROCS, size);
  job.Add(PMIX_JOB_NUM_APPS, uint32_t{1});
  job.Add(PMIX_APP_SIZE, size);
  job.Add(PMIX_NUM_NODES, static_cast<uint32_t>(map_.machines.size()));
  job.Add(PMIX_NODE_SIZE, here);
  job.Add(PMIX_LOCAL_SIZE, here);
  job.Add(PMIX_NODEID, static_cast<uint32_t>(map_.self));
  job.Add(PMIX_LOCAL_PEERS, local);
  job.AddRank(PMIX_LOCALLDR, static_cast<pmix_rank_t>(first));
  job.AddRank(PMIX_APPLDR, 0);
  job.Add(PMIX_TMPDIR, map_.folder);
  job.Add(PMIX_NSDIR, map_.folder);
  job.AddRegex(PMIX_NODE_MAP, node_map);
  job.AddRegex(PMIX_PROC_MAP, process_map);
  std::free(node_map);
  std::free(process_map);
  for (int rank = 0; rank < map_.size(); ++rank) {
    const size_t machine = map_.machine_of(rank);
    const auto local_rank = static_cast<uint16_t>(rank - map_.first_rank(machine));
    InfoList process;
    process.AddRank(PMIX_RANK, static_cast<pmix_rank_t>(rank));
    process.AddRank(PMIX_GLOBAL_RANK, static_cast<pmix_rank_t>(rank));
    process.AddRank(PMIX_APP_RANK, static_cast<pmix_rank_t>(rank));
    process.Add(PMIX_APPNUM, uint32_t{0});
    process.Add(PMIX_LOCAL_RANK, local_rank);
    process.Add(PMIX_NODE_RANK, local_rank);
    process.Add(PMIX_NODEID, static_cast<uint32_t>(machine));
    process.Add(PMIX_HOSTNAME, MachineName(machine));
    job.Add(PMIX_PROC_DATA, process);
  }
  pmix_data_array_t& array = job.Convert();
  LOCKSTEP_RETURN_IF_ERROR(Await("register_nspace", [&](pmix_op_cbfunc_t end, void* context) {
    return PMIx_server_register_nspace(map_.name_space.c_str(), static_cast<int>(here),
                                       static_cast<pmix_info_t*>(array.array), array.size, end, context);
  }));
  for (int i = 0; i < static_cast<int>(here); ++i) {
    const pmix_proc_t process = ProcessOf(map_, first + i);
    LOCKSTEP_RETURN_IF_ERROR(Await("register_client", [&](pmix_op_cbfunc_t end, void* context) {
      return PMIx_server_register_client(&process, ::getuid(), ::getgid(), nullptr, end, context);
    }));
  }
  return {};
}

Result<Server::Environment> Server::EnvironmentOf(int rank) const {
  const pmix_proc_t process = ProcessOf(map_, rank);
  char** variables = nullptr;
  LOCKSTEP_RETURN_IF_ERROR(Checked(PMIx_server_setup_fork(&process, &variables), "setup_fork"));
  Environment environment;
  for (char** variable = variables; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const size_t equals = text.find('=');
    environment[text.substr(0, equals)] = text.substr(equals + 1);
  }
  PMIX_ARGV_FREE(variables);
  return environment;
}

}  // namespace lockstep::pmix
