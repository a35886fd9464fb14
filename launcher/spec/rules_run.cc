#include <arpa/inet.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "common/contract/environment.h"
#include "launcher/spec/log_pattern.h"
#include "launcher/spec/quote.h"
#include "launcher/spec/rules.h"

namespace lockstep::spec {

namespace {

void CheckProgram(const Program& program, const std::string& path, std::vector<Finding>* findings) {
  const std::pair<const char*, const std::vector<std::string>*> commands[] = {{".command", &program.command},
                                                                              {".prepare", &program.prepare}};
  for (const auto& [name, command] : commands) {
    if (command->empty() || !command->front().empty()) continue;
    findings->push_back({path + name + "[0]", "is empty; name the program to run", {}});
  }
  std::set<std::string> names;
  for (size_t i = 0; i < program.environment.size(); ++i) {
    const std::string& name = program.environment[i].first;
    const std::string field = PathTo(path + ".env", i) + ".name";
    if (contract::IsReserved(name)) {
      findings->push_back({field, Quoted(name) + " is set by the launcher; leave it out", {}});
    }
    if (!names.insert(name).second) {
      findings->push_back({field, Quoted(name) + " is set before; keep one of them", {}});
    }
  }
  for (size_t i = 0; i < program.environment_files.size(); ++i) {
    if (!program.environment_files[i].empty()) continue;
    findings->push_back({PathTo(path + ".envFiles", i), "is empty; name a file", {}});
  }
  if (!program.progress_log_pattern) return;
  const auto pattern = LogPattern::Compile(*program.progress_log_pattern);
  if (!pattern.ok()) findings->push_back({path + ".progress.logPattern", pattern.status().message(), {}});
}

void CheckExitCodes(const RunPolicy& policy, std::vector<Finding>* findings) {
  std::set<std::pair<int, std::string>> seen;
  for (size_t i = 0; i < policy.exit_codes.size(); ++i) {
    const ExitCodeRule& rule = policy.exit_codes[i];
    const std::string path = PathTo("spec.runPolicy.exitCodes", i);
    if (rule.codes.empty() && rule.reason.empty()) {
      findings->push_back({path, "matches nothing; give codes, a reason or both", {}});
    }
    for (size_t k = 0; k < rule.codes.size(); ++k) {
      const int code = rule.codes[k];
      if (seen.contains({code, ""}) || seen.contains({code, rule.reason})) {
        findings->push_back(
            {PathTo(path + ".codes", k),
             "a rule before takes every " + std::to_string(code) + " of this reason; leave it out",
             {path}});
      }
    }
    for (const int code : rule.codes) seen.emplace(code, rule.reason);
  }
}

}  // namespace

void CheckPrograms(const TrainingJob& job, std::vector<Finding>* findings) {
  const bool all_have_own =
      !job.roles.empty() && std::all_of(job.roles.begin(), job.roles.end(),
                                        [](const Role& role) { return role.program.has_value(); });
  if (!job.trainer && !job.program && !all_have_own) {
    findings->push_back(
        {"spec", "neither trainer nor program is given; give one of them", {"spec.trainer", "spec.program"}});
  }
  if (job.trainer && job.program) {
    findings->push_back(
        {"spec.program", "excludes trainer, which is given too; keep one of them", {"spec.trainer"}});
  }
  if (job.program) CheckProgram(*job.program, "spec.program", findings);
  for (size_t i = 0; i < job.roles.size(); ++i) {
    if (job.roles[i].program) CheckProgram(*job.roles[i].program, PathOfRole(job, i) + ".program", findings);
  }
}

void CheckRun(const TrainingJob& job, std::vector<Finding>* findings) {
  const RunPolicy& policy = job.run_policy;
  CheckExitCodes(policy, findings);
  const std::string& address = job.http.address;
  unsigned char parsed[sizeof(in6_addr)];
  if (inet_pton(AF_INET, address.c_str(), parsed) != 1 && inet_pton(AF_INET6, address.c_str(), parsed) != 1) {
    findings->push_back({"spec.http.address",
                         Quoted(address) + " is no IP address; give one, for example 127.0.0.1 or 0.0.0.0",
                         {}});
  }
  const Role* worker = WorkerOf(job);
  if (policy.min_replicas && worker != nullptr && *policy.min_replicas > worker->replicas) {
    findings->push_back({"spec.runPolicy.minReplicas",
                         std::to_string(*policy.min_replicas) + " is more than replicas, which is " +
                             std::to_string(worker->replicas) + "; at most " +
                             std::to_string(worker->replicas),
                         {PathOfWorker(job) + ".replicas"}});
  }
}

}  // namespace lockstep::spec
