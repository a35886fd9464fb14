#include "launcher/job/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temporary_folder.h"

namespace lockstep::job {
namespace {

namespace fs = std::filesystem;
using lockstep::testing::TemporaryFolder;

std::string Executable(const TemporaryFolder& folder, const std::string& name) {
  fs::create_directories(fs::path(folder.File(name)).parent_path());
  const std::string path = folder.Write(name, "#!/bin/sh\n");
  fs::permissions(path, fs::perms::owner_all);
  return path;
}

TEST(FindProgramTest, TakesTheFirstOfThePathThatCanBeExecuted) {
  const TemporaryFolder folder;
  const std::string second = Executable(folder, "b/tool");
  fs::create_directories(folder.File("a/tool"));  // a folder of the name
  fs::create_directories(folder.File("c"));
  folder.Write("c/tool", "no program");
  const auto in = [&](const std::string& path) { return FindProgram("tool", {{"PATH", path}}); };
  EXPECT_EQ(in(folder.File("a") + ":" + folder.File("c") + "::" + folder.File("b")), second);
  EXPECT_EQ(in(folder.File("c")), "");
  EXPECT_EQ(in(""), "");
  EXPECT_EQ(FindProgram("tool", {}), "");
  EXPECT_EQ(FindProgram(second, {}), second);
}

TEST(FindCudaPluginTest, LooksBesideTheTrainerAndInLib) {
  const TemporaryFolder folder;
  const std::string trainer = Executable(folder, "bin/lockstep-trainer");
  const placement::Environment path = {{"PATH", folder.File("bin")}};
  EXPECT_EQ(FindCudaPlugin(trainer, {}), "");
  fs::create_directories(folder.File("lib"));
  const std::string in_lib = fs::canonical(folder.Write("lib/liblockstep-cuda.so", "x"));
  EXPECT_EQ(FindCudaPlugin(trainer, {}), in_lib);
  const std::string beside = fs::canonical(folder.Write("bin/liblockstep-cuda.so", "x"));
  EXPECT_EQ(FindCudaPlugin(trainer, {}), beside);
  EXPECT_EQ(FindCudaPlugin("lockstep-trainer", path), beside);
  EXPECT_EQ(FindCudaPlugin("lockstep-trainer", {}), "");
}

TEST(FindCudaPluginTest, BelievesTheEnvironmentAndNothingElseThen) {
  const TemporaryFolder folder;
  const std::string trainer = Executable(folder, "bin/lockstep-trainer");
  folder.Write("bin/liblockstep-cuda.so", "x");
  const std::string mine = folder.Write("mine.so", "x");
  EXPECT_EQ(FindCudaPlugin(trainer, {{"LOCKSTEP_CUDA_PLUGIN", mine}}), mine);
  EXPECT_EQ(FindCudaPlugin(trainer, {{"LOCKSTEP_CUDA_PLUGIN", folder.File("absent.so")}}), "");
}

}  // namespace
}  // namespace lockstep::job
