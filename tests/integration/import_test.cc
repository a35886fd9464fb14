#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/paths.h"
#include "tests/support/launcher_process.h"

// `lockstep import`, as one types it.
namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Sample(const std::string& name) { return LOCKSTEP_SOURCE_DIR "/tests/testdata/import/" + name; }

class ImportCommandTest : public ::testing::Test {
 protected:
  int Run(std::vector<std::string> arguments) {
    LauncherProcess process({.arguments = std::move(arguments)});
    const int code = process.Wait();
    out_ = process.out();
    err_ = process.err();
    return code;
  }
  TemporaryFolder folder_;
  std::string out_, err_;
};

TEST_F(ImportCommandTest, ManifestsComeOutAndLinesBesideThem) {
  const std::string file = Sample("tf_job_servers.yaml");
  EXPECT_EQ(Run({"import", file, Sample("job_set.yaml")}), 0) << err_;
  EXPECT_THAT(
      err_, HasSubstr(file + ":27: spec.runPolicy.schedulingPolicy.minResources: no equivalent; left out\n"));
  const std::string imported = folder_.Write("jobs.yaml", out_);
  EXPECT_EQ(Run({"validate", imported}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("mnist-ps is valid"));
  EXPECT_THAT(out_, HasSubstr("pytorch is valid"));
}

TEST_F(ImportCommandTest, StrictEndsWithOneWhereSomethingIsLeftOut) {
  EXPECT_EQ(Run({"import", "--strict", Sample("pytorch_job.yaml")}), 0) << err_;
  EXPECT_EQ(Run({"import", "--strict", Sample("job_set.yaml")}), 1) << err_;
}

TEST_F(ImportCommandTest, WhatTorchrunStartsLockstepStarts) {
  ASSERT_EQ(Run({"import", "--torchrun",
                 "GREETING=hello torchrun --no-python --nproc-per-node 2 sh -c 'echo $GREETING from $RANK of "
                 "$WORLD_SIZE'"}),
            0)
      << err_;
  EXPECT_THAT(err_, IsEmpty());
  const std::string manifest = folder_.Write("job.yaml", out_);
  ASSERT_EQ(Run({"run", "--run-dir", folder_.File("run"), manifest}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("hello from 0 of 2"));
  EXPECT_THAT(out_, HasSubstr("hello from 1 of 2"));
}

TEST_F(ImportCommandTest, WrongUsageIsTwo) {
  EXPECT_EQ(Run({"import"}), 2);
  EXPECT_EQ(Run({"import", "--torchrun", "torchrun a.py", Sample("job_set.yaml")}), 2);
  EXPECT_EQ(Run({"import", folder_.File("not-there.yaml")}), 2);
  EXPECT_THAT(err_, HasSubstr("not-there.yaml"));
  EXPECT_EQ(Run({"import", folder_.Write("map.yaml", "apiVersion: v1\nkind: ConfigMap\n")}), 2);
  EXPECT_THAT(err_, HasSubstr("no job in any file"));
}

}  // namespace
}  // namespace lockstep::testing
