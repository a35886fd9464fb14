#include "tests/unit/import/support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "launcher/spec/manifest.h"
#include "tests/paths.h"

namespace lockstep::importer::testing {

namespace {

spec::TrainingJob OneOf(const Imported& imported) {
  const std::vector<spec::TrainingJob> jobs = JobsOf(imported);
  EXPECT_EQ(jobs.size(), 1u) << imported.manifests;
  return jobs.empty() ? spec::TrainingJob{} : jobs.front();
}

}  // namespace

std::vector<std::filesystem::path> Samples() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(Sample(""))) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::filesystem::path Sample(std::string_view name) {
  return std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/testdata/import" / name;
}

std::string TextOf(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

Imported ImportText(const std::string& text) { return ImportManifests({{"x.yaml", text}}); }

std::vector<spec::TrainingJob> JobsOf(const Imported& imported) {
  const spec::Manifests read = spec::ReadManifests(imported.manifests, "imported");
  for (const spec::Diagnostic& error : read.errors)
    ADD_FAILURE() << error.ToString() << "\n" << imported.manifests;
  return read.jobs;
}

spec::TrainingJob JobOfSample(std::string_view name) { return OneOf(ImportText(TextOf(Sample(name)))); }

spec::TrainingJob JobOfText(const std::string& text) { return OneOf(ImportText(text)); }

std::vector<std::string> LinesOf(const Imported& imported) {
  std::vector<std::string> lines;
  for (const Note& note : imported.notes) lines.push_back(note.ToString());
  for (const Note& error : imported.errors) lines.push_back(error.ToString());
  return lines;
}

}  // namespace lockstep::importer::testing
