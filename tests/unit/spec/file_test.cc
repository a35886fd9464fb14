#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/contract/exit_codes.h"
#include "tests/unit/spec/support.h"

namespace lockstep::spec {
namespace {

using ::testing::HasSubstr;

class ManifestFileTest : public ::testing::Test {
 protected:
  ManifestFileTest() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-spec-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~ManifestFileTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }

  std::filesystem::path folder_;
};

TEST_F(ManifestFileTest, ReadsAFile) {
  const auto text = ReadManifestFile(Write("a.yaml", std::string("a\0b", 3)));
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text, std::string("a\0b", 3));
}

TEST_F(ManifestFileTest, RefusesWhatIsNoFileWithoutWaiting) {
  const std::string fifo = (folder_ / "fifo").string();
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path :
       {fifo, folder_.string(), std::string("/dev/zero"), std::string("/dev/tty0")}) {
    const auto text = ReadManifestFile(path);
    ASSERT_FALSE(text.ok()) << path;
    EXPECT_THAT(text.status().message(), ::testing::StartsWith(path + ": "));
  }
  EXPECT_EQ(ReadManifestFile("/dev/zero").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadManifestFile((folder_ / "none").string()).status().code(), StatusCode::kNotFound);
}

TEST_F(ManifestFileTest, ReadsAMegabyteAndNoMore) {
  EXPECT_TRUE(ReadManifestFile(Write("full", std::string(kMaxManifestBytes, 'x'))).ok());
  EXPECT_EQ(ReadManifestFile(Write("over", std::string(kMaxManifestBytes + 1, 'x'))).status().code(),
            StatusCode::kResourceExhausted);
}

TEST_F(ManifestFileTest, ValidateSaysAllErrorsOfAllFiles) {
  const std::string good = Write("good.yaml", testing::WithTrainer("") + "---\nkind: Pod\napiVersion: v1\n");
  const std::string bad = Write("bad.yaml", testing::WithTrainer("  replicas: 0\n  suspend: 1"));
  std::ostringstream out;
  std::ostringstream errors;
  EXPECT_EQ(ValidateFiles({good, bad, (folder_ / "none").string()}, out, errors), contract::kExitUsage);
  EXPECT_EQ(out.str(), good + ": x is valid\n");
  EXPECT_THAT(errors.str(), HasSubstr(good + ":8: a Pod, skipped\n"));
  EXPECT_THAT(errors.str(), HasSubstr(bad + ":5:13: spec.replicas: 0 is too small; at least 1\n"));
  EXPECT_THAT(errors.str(), HasSubstr(bad + ":6:12: spec.suspend: "));
  EXPECT_THAT(errors.str(), HasSubstr("none: cannot be opened: No such file or directory\n"));
  EXPECT_EQ(ValidateFiles({good}, out, errors), contract::kExitDone);
}

}  // namespace
}  // namespace lockstep::spec
