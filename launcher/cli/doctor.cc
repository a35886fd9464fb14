#include "launcher/doctor/doctor.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "common/contract/exit_codes.h"
#include "common/inherited_environment.h"
#include "launcher/cli/commands.h"
#include "launcher/job/machine.h"

namespace lockstep::cli {

void AddDoctor(CLI::App& app, Action& action) {
  auto* command =
      app.add_subcommand("doctor", "Check whether this machine is fit for training, and say what to do");
  auto options = std::make_shared<doctor::Options>();
  auto format = std::make_shared<std::string>("text");
  command->add_option("--peer", options->peers,
                      "HOST:PORT of another machine that is to be reached; may be repeated");
  command->add_option("-o,--output", *format, "text or json")->check(CLI::IsMember({"text", "json"}));
  command->callback([&action, options, format] {
    action = [options, format] {
      options->environment = InheritedEnvironment();
      options->trainer = job::FindProgram(job::OwnProgram(job::kTrainer), options->environment);
      const std::vector<doctor::Finding> findings = doctor::Examine(*options);
      std::cout << (*format == "json" ? doctor::FindingsJson(findings) : doctor::FindingsText(findings));
      const bool fault = std::any_of(findings.begin(), findings.end(), [](const auto& finding) {
        return finding.level == doctor::Level::kFault;
      });
      return fault ? contract::kExitPermanent : contract::kExitDone;
    };
  });
}

}  // namespace lockstep::cli
