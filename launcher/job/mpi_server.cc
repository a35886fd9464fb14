#include "launcher/job/mpi_server.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>
#include <utility>

#include "common/contract/environment.h"

namespace lockstep::job {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kServeLimit = std::chrono::seconds(15);
constexpr size_t kMaxAnswer = size_t{4} << 20;

// Appends what there is; false at the end.
bool ReadSome(int fd, std::string& text) {
  char bytes[4096];
  while (true) {
    const ssize_t n = ::read(fd, bytes, sizeof bytes);
    if (n > 0) {
      text.append(bytes, static_cast<size_t>(n));
    } else if (n == 0 || errno != EINTR) {
      return n != 0;
    }
  }
}

}  // namespace

MpiServer::MpiServer(EventLoop& loop, Options options) : loop_(loop), options_(std::move(options)) {}

Result<std::unique_ptr<MpiServer>> MpiServer::Start(EventLoop& loop, Options options) {
  std::unique_ptr<MpiServer> server(new MpiServer(loop, std::move(options)));
  LOCKSTEP_RETURN_IF_ERROR(server->MakeFolder());
  LOCKSTEP_RETURN_IF_ERROR(server->Spawn());
  LOCKSTEP_RETURN_IF_ERROR(server->AwaitEnvironments());
  LOCKSTEP_RETURN_IF_ERROR(
      loop.Watch(server->pipes_.err.get(), EPOLLIN, [self = server.get()](uint32_t) { self->OnSaid(); }));
  return server;
}

MpiServer::~MpiServer() {
  if (pipes_.err) {
    loop_.Unwatch(pipes_.err.get());
    OnSaid();
  }
  process_ = {};
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

Status MpiServer::MakeFolder() {
  for (std::string folder :
       {std::string("/dev/shm/lockstep-mpi-XXXXXX"), options_.run_folder + "/mpi-XXXXXX"}) {
    if (::mkdtemp(folder.data()) == nullptr) continue;
    folder_ = folder;
    return {};
  }
  return Status::FromErrno(errno, "MPI: make a folder in " + options_.run_folder);
}

Status MpiServer::Spawn() {
  placement::Environment environment = options_.environment;
  environment[contract::kPmixJob] = pmix::FormatJobMap({.name_space = options_.name_space,
                                                        .folder = folder_,
                                                        .machines = options_.machines,
                                                        .self = options_.self,
                                                        .horovod = options_.horovod});
  // Without it OpenPMIx looks the user up, and does not live where there is none of that number.
  environment.try_emplace("HOME", "/tmp");
  // Otherwise it asks a munge daemon who its clients are; the kernel knows.
  environment.try_emplace("PMIX_MCA_psec", "native");
  process::Launch launch{.name = "lockstep-pmix", .command = {options_.program}};
  launch.environment.assign(environment.begin(), environment.end());
  auto spawned = process::ChildProcess::Spawn(launch);
  if (!spawned.ok()) return FailedPrecondition("MPI: " + spawned.status().message());
  process_ = std::move(spawned->process);
  pipes_ = std::move(spawned->pipes);
  return {};
}

Status MpiServer::AwaitEnvironments() {
  const auto deadline = Clock::now() + kServeLimit;
  bool open = true;
  size_t end = std::string::npos;
  while (open && end == std::string::npos) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd watched{.fd = pipes_.out.get(), .events = POLLIN, .revents = 0};
    if (left <= 0 || out_.size() > kMaxAnswer) break;
    if (::poll(&watched, 1, static_cast<int>(left)) > 0) open = ReadSome(pipes_.out.get(), out_);
    end = out_.find('\n');
  }
  const auto failure = [&](const std::string& why) {
    std::string said;
    (void)ReadSome(pipes_.err.get(), said);
    return FailedPrecondition("MPI: " + options_.program + " " + why + (said.empty() ? "" : ": " + said));
  };
  if (end == std::string::npos && open) {
    return failure("does not serve within " + std::to_string(kServeLimit.count()) + " s");
  }
  if (end == std::string::npos) {
    pollfd gone{.fd = process_.pidfd(), .events = POLLIN, .revents = 0};
    ::poll(&gone, 1, 1000);
    const auto status = process_.TryWait();
    return failure("has ended" + (status ? " with exit code " + std::to_string(status->exit_code) : ""));
  }
  const auto answer = nlohmann::json::parse(out_.substr(0, end), nullptr, /*allow_exceptions=*/false);
  out_.erase(0, end + 1);
  if (!answer.is_object()) return failure("says what is no JSON");
  if (answer.contains("error")) return failure("does not serve: " + answer.value("error", ""));
  for (const auto& environment : answer.value("environments", nlohmann::json::array())) {
    placement::Variables variables;
    for (const auto& [name, value] : environment.items()) variables.emplace_back(name, value);
    environments_.push_back(std::move(variables));
  }
  return {};
}

bool MpiServer::NobodyCame() {
  const int ranks = std::accumulate(options_.machines.begin(), options_.machines.end(), 0);
  (void)ReadSome(pipes_.out.get(), out_);
  return ranks > 1 && !out_.starts_with("connected");
}

void MpiServer::OnSaid() {
  std::string bytes;
  if (!ReadSome(pipes_.err.get(), bytes)) loop_.Unwatch(pipes_.err.get());
  said_.Feed(bytes, [&](std::string_view line) {
    if (!line.empty()) options_.say("MPI: " + std::string(line));
  });
}

}  // namespace lockstep::job
