#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/import/import.h"
#include "launcher/spec/training_job.h"

// What the tests of the import folder share.
namespace lockstep::importer::testing {

// Every file of tests/testdata/import, sorted.
std::vector<std::filesystem::path> Samples();
// One of them, "job_set.yaml".
std::filesystem::path Sample(std::string_view name);
std::string TextOf(const std::filesystem::path& file);

// A text under the name "x.yaml".
Imported ImportText(const std::string& text);
// The jobs that came out; a test failure where they are not valid.
std::vector<spec::TrainingJob> JobsOf(const Imported& imported);
// The one that came out of a sample, or of a text.
spec::TrainingJob JobOfSample(std::string_view name);
spec::TrainingJob JobOfText(const std::string& text);
// Notes and errors as `lockstep import` writes them.
std::vector<std::string> LinesOf(const Imported& imported);

}  // namespace lockstep::importer::testing
