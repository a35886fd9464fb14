#include "launcher/import/import.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "launcher/cli/commands.h"

namespace lockstep::cli {

void AddImport(CLI::App& app, Action& action) {
  auto* command =
      app.add_subcommand("import", "Turn others' manifests, or a torchrun command, into TrainingJobs");
  auto options = std::make_shared<importer::Options>();
  auto* files = command->add_option("FILE", options->files,
                                    "manifests, or - for standard input: TFJob, PyTorchJob, MPIJob, TrainJob "
                                    "with its runtime, JobSet, Volcano's Job");
  auto* torchrun = command->add_option("--torchrun", options->torchrun,
                                       "instead of files a command: 'torchrun --nproc-per-node 4 train.py'");
  command->add_flag("--strict", options->strict, "end with 1 when something is left out");
  files->excludes(torchrun);
  command->callback([&action, files, torchrun, options] {
    if (files->count() + torchrun->count() == 0) throw CLI::RequiredError("FILE or --torchrun");
    action = [options] { return importer::Import(*options, std::cout, std::cerr); };
  });
}

}  // namespace lockstep::cli
