#include <algorithm>
#include <set>
#include <utility>

#include "common/contract/environment.h"
#include "common/contract/exit_codes.h"
#include "common/inherited_environment.h"
#include "launcher/doctor/doctor.h"
#include "launcher/job/launcher.h"
#include "launcher/job/machine.h"
#include "launcher/job/translate.h"
#include "launcher/placement/discover.h"
#include "launcher/placement/render.h"
#include "launcher/spec/json.h"
#include "launcher/spec/roles.h"
#include "launcher/spec/validate.h"

// The part of a Launcher that has to do with the machine's devices.
namespace lockstep::job {

Status Launcher::Assign() {
  inherited_ = InheritedEnvironment();
  devices_ = RequestDevices(options_.job, options_.whole ? "" : role_here().name, inherited_);
  devices_.tpus = options_.in_pod;
  auto parts = AssignHere();
  LOCKSTEP_RETURN_IF_ERROR(parts.status());
  parts_ = std::move(*parts);
  assignment_ = placement::Gathered(parts_);
  job_ = placement::Resolved(options_.job, assignment_);
  NoteWhatFrameworksNeed();
  return CheckBatch();
}

void Launcher::NoteWhatFrameworksNeed() {
  if (framework_here() == spec::Framework::kNone) return;
  for (const doctor::Finding& finding :
       doctor::ExamineForFrameworks({.environment = inherited_}, devices_.inventory.driver_version)) {
    if (finding.level == doctor::Level::kFine) continue;
    assignment_.notices.push_back(finding.about + ": " + finding.what + "; " + finding.fix);
  }
}

Result<std::vector<placement::DeviceAssignment>> Launcher::AssignHere() const {
  if (options_.whole) return placement::AssignRoles(options_.job, devices_);
  auto assignment = placement::AssignDevices(options_.job, devices_);
  if (!assignment.ok()) return assignment.status();
  return std::vector{std::move(*assignment)};
}

spec::Framework Launcher::framework_here() const {
  const spec::Program* program = spec::ProgramOf(options_.job, role_here());
  return program == nullptr ? spec::Framework::kNone : program->framework;
}

const spec::Role& Launcher::role_here() const {
  if (options_.whole) return WorkerOf(options_.job);
  return options_.job.roles[static_cast<size_t>(spec::SeatOf(options_.job, options_.replica).role)];
}

Result<std::string> Launcher::LockFolder() const {
  const auto given = inherited_.find(contract::kDeviceLedger);
  return ledger::DeviceLedger::FolderFor(given == inherited_.end() ? "" : given->second);
}

Status Launcher::ClaimDevices() {
  const std::vector<ledger::Use> uses = ledger::UsesOf(assignment_, devices_.inventory);
  if (uses.empty()) return {};
  const auto folder = LockFolder();
  if (folder.status().code() == StatusCode::kNotFound && !inherited_.contains(contract::kDeviceLedger)) {
    assignment_.notices.push_back(folder.status().message() + "; other jobs do not see what this one takes");
    return {};
  }
  LOCKSTEP_RETURN_IF_ERROR(folder.status());
  std::vector<std::string> overruled;
  auto claims = ledger::DeviceLedger::Acquire({.folder = *folder,
                                               .job = options_.job.name,
                                               .namespace_name = options_.job.namespace_name,
                                               .force = options_.force},
                                              uses, overruled);
  if (!claims.ok()) {
    const Status& why = claims.status();
    return {why.code(), why.message() + "; wait for it, take less (devices.memory), or run with --force"};
  }
  claims_ = std::move(*claims);
  for (const std::string& each : overruled)
    assignment_.notices.push_back(each + "; started all the same (--force)");
  return {};
}

Status Launcher::CheckBatch() const {
  // An elastic job starts with its full size, and is cut unevenly when it is smaller.
  if (!DividesBatch(options_.job) || (IsElastic(options_.job) && !devices_.left_out.empty())) return {};
  return spec::CheckBatchDivides(
      options_.job.trainer->batch_size,
      static_cast<int64_t>(assignment_.processes.size()) * WorkerOf(options_.job).replicas);
}

Status Launcher::WatchGpus() {
  std::set<std::string> devices;
  for (const placement::ProcessDevices& process : assignment_.processes) {
    if (process.type == spec::DeviceType::kGpu)
      devices.insert(process.devices.begin(), process.devices.end());
  }
  if (devices.empty()) return {};
  auto health = GpuHealth::Start(
      *loop_, *state_,
      {.nvml_library = placement::DiscoverOptionsFrom(inherited_, /*gpus=*/true).nvml_library,
       .inventory = devices_.inventory,
       .devices = {devices.begin(), devices.end()},
       .say = [this](const std::string& line) { SayAlways(line); }});
  LOCKSTEP_RETURN_IF_ERROR(health.status());
  gpu_health_ = std::move(*health);
  return {};
}

Result<placement::EnvironmentFiles> Launcher::EnvironmentFilesHere() const {
  return placement::ReadEnvironmentFiles(job_, options_.whole ? "" : role_here().name);
}

Status Launcher::StartMps(placement::GenerationFacts& facts) {
  std::set<std::string> devices;
  bool asked = false;
  for (const placement::ProcessDevices& process : assignment_.processes) {
    asked = asked || process.memory.mps;
    devices.insert(process.visible.begin(), process.visible.end());
  }
  if (!asked) return {};
  auto daemon = MpsDaemon::Start({.program = FindProgram(kMpsControl, inherited_),
                                  .run_folder = folder_->path(),
                                  .devices = {devices.begin(), devices.end()},
                                  .environment = inherited_});
  LOCKSTEP_RETURN_IF_ERROR(daemon.status());
  mps_ = std::move(*daemon);
  facts.mps_pipe_directory = mps_->pipe_directory();
  facts.mps_log_directory = mps_->log_directory();
  return {};
}

Status Launcher::StartMpi(placement::GenerationFacts& facts) {
  const bool horovod = framework_here() == spec::Framework::kHorovod;
  if (!horovod && framework_here() != spec::Framework::kMpi) return {};
  MpiServer::Options options{
      .program = OwnProgram(kPmixServer),
      .self = facts.self,
      .horovod = horovod,
      .name_space = options_.job.name + "." + facts.run + "." + std::to_string(facts.generation),
      .run_folder = folder_->path(),
      .environment = inherited_,
      .say = [this](const std::string& line) { SayAlways(line); }};
  int first_rank = 0;
  for (size_t i = 0; i < facts.replicas.size(); ++i) {
    options.machines.push_back(facts.replicas[i].processes);
    if (i < facts.self) first_rank += facts.replicas[i].processes;
  }
  options.environment[contract::kRank] = std::to_string(first_rank);
  options.environment[contract::kJob] = options_.job.name;
  options.environment[contract::kGeneration] = std::to_string(facts.generation);
  options.environment[contract::kRun] = facts.run;
  options.environment[contract::kStoreAddress] = facts.store_address;
  options.environment[contract::kTokenFile] = facts.token_file;
  auto server = MpiServer::Start(*loop_, std::move(options));
  LOCKSTEP_RETURN_IF_ERROR(server.status());
  mpi_ = std::move(*server);
  facts.mpi = mpi_->environments();
  facts.mpi_folder = mpi_->folder();
  return {};
}

void Launcher::StopServers(bool all_is_well) {
  mps_.reset();
  // (Horovod's ranks may have met over Gloo.)
  if (mpi_ && framework_here() == spec::Framework::kMpi && all_is_well && mpi_->NobodyCame()) {
    SayAlways(
        "MPI: no rank has asked the PMIx server who the others are, so each was a world of its own; link the "
        "program with Open MPI 4 or 5, or another MPI that uses PMIx (MPICH and Intel MPI do not)");
  }
  mpi_.reset();
}

void Launcher::SayPlacement(const placement::Plan& plan) {
  const bool asked = role_here().devices.log_placement;
  if (asked) {
    SayAlways(placement::CountDevices(plan));
    for (const std::string& line : placement::DescribePlacement(plan)) SayAlways(line);
  } else if (plan.type == spec::DeviceType::kGpu) {
    Say(placement::CountDevices(plan));
  }
}

std::string Launcher::TroubleOf(int local_rank) const {
  const auto index = static_cast<size_t>(local_rank);
  if (!gpu_health_ || index >= assignment_.processes.size()) return "";
  return gpu_health_->TroubleOf(assignment_.processes[index].devices);
}

void Launcher::ReportAwaited() {
  for (process::ExitReport& report : std::exchange(awaited_, {})) {
    report.device_trouble = TroubleOf(report.local_rank);
    const auto index = static_cast<size_t>(report.local_rank);
    const bool device_failed = gpu_health_->Failed(assignment_.processes[index].devices);
    membership_->ReportFailure(FailureOf(report, HangOf(report.rank), device_failed));
    if (device_failed && restarts_alone_ && cannot_go_on_.empty()) {
      // Another machine has others.
      cannot_go_on_ = process::RankInWords(report) + " has lost its device: " + report.device_trouble;
      options_.replica == 0 ? membership_->DecideFinish(contract::kExitDeviceLost, cannot_go_on_)
                            : membership_->RequestStop(cannot_go_on_, contract::kExitDeviceLost);
    }
  }
  if (const auto reports = std::exchange(awaiting_stopped_, std::nullopt)) OnAllStopped(*reports);
}

void Launcher::LeaveOutFailedGpus() {
  if (!gpu_health_) return;
  const std::map<int, std::string> failed = gpu_health_->TakeFailed();
  if (failed.empty()) return;
  std::string names;
  for (const auto& [index, why] : failed) {
    names += (names.empty() ? "GPU " : ", GPU ") + std::to_string(index) + " failed: " + why;
    devices_.left_out[index] = why;
  }
  const size_t before = assignment_.processes.size();
  auto old_parts = std::move(parts_);
  placement::DeviceAssignment old = std::move(assignment_);
  auto again = AssignHere();
  Status status = again.status();
  if (status.ok()) {
    parts_ = std::move(*again);
    assignment_ = placement::Gathered(parts_);
    status = CheckBatch();
    // The processor is no substitute beside other machines' GPUs.
    if (assignment_.type != spec::DeviceType::kGpu &&
        (!role_here().devices.soft_placement || replicas() > 1)) {
      status = FailedPrecondition("no GPU is left");
    }
  }
  if (!status.ok()) {
    parts_ = std::move(old_parts);
    assignment_ = std::move(old);
    cannot_go_on_ = names + "; the job does not go on without it: " + status.message();
    return;
  }
  placement_said_ = false;
  job_ = placement::Resolved(options_.job, assignment_);
  regroup_->NobodyGoesOn();  // they have read the manifest as it was
  if (const Status written = WriteFile(folder_->manifest_file(), spec::ToJson(job_) + "\n"); !written.ok()) {
    cannot_go_on_ = written.message();
    return;
  }
  const size_t now = assignment_.processes.size();
  SayAlways(names + "; the job goes on with " + std::to_string(now) +
            (now == before ? " processes as before" : " processes instead of " + std::to_string(before)));
  if (now != before) membership_->ReportReady(static_cast<int>(now));
}

void Launcher::ReportStopped() {
  LeaveOutFailedGpus();
  // Asked to stop for another generation, and done: there is none to come. A program may end with 0 because
  // it was asked to.
  const bool done = resizing_ && ranks_done_ && options_.job.trainer.has_value();
  membership_->ReportStopped(done ? contract::kExitDone : exit_code_);
  if (cannot_go_on_.empty()) return;
  // Replica 0 answers when it is asked what becomes of the job (OnFailureReported).
  if (options_.replica != 0) membership_->RequestStop(cannot_go_on_, contract::kExitDeviceLost);
}

}  // namespace lockstep::job
