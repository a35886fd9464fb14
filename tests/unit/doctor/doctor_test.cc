#include "launcher/doctor/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "launcher/http/listen_socket.h"
#include "tests/support/temporary_folder.h"

namespace lockstep::doctor {
namespace {

using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

Finding About(const std::vector<Finding>& findings, const std::string& about) {
  const auto found = std::find_if(findings.begin(), findings.end(),
                                  [&](const Finding& finding) { return finding.about == about; });
  if (found != findings.end()) return *found;
  ADD_FAILURE() << "nothing about " << about << " in\n" << FindingsText(findings);
  return {};
}

TEST(DoctorTest, SaysWhatToDoAboutAllThatIsNotFine) {
  for (const Finding& finding : Examine({})) {
    EXPECT_THAT(finding.what, Not(IsEmpty())) << finding.about;
    if (finding.level != Level::kFine) {
      EXPECT_THAT(finding.fix, Not(IsEmpty())) << finding.about;
    }
  }
}

TEST(DoctorTest, FindsSharedMemoryThatIsMissing) {
  const testing::TemporaryFolder root;
  const Finding finding = About(ExamineMachine(root.path()), "/dev/shm");
  EXPECT_EQ(finding.level, Level::kFault);
  EXPECT_THAT(finding.fix, HasSubstr("--shm-size"));
}

TEST(DoctorTest, ReachesPeersOrSaysWhyNot) {
  auto socket = http::Listen("127.0.0.1", 0);
  ASSERT_TRUE(socket.ok());
  const std::string peer = socket->address;
  EXPECT_EQ(About(ExamineNetwork({.peers = {peer}}), "peer " + peer).level, Level::kFine);
  socket->fd.reset();
  const Finding refused = About(ExamineNetwork({.peers = {peer}}), "peer " + peer);
  EXPECT_EQ(refused.level, Level::kFault);
  EXPECT_EQ(refused.what, "Connection refused");
  EXPECT_THAT(refused.fix, HasSubstr("--rendezvous"));
  const Finding wrong = About(ExamineNetwork({.peers = {"node1"}}), "peer node1");
  EXPECT_EQ(wrong.level, Level::kFault);
  EXPECT_THAT(wrong.what, HasSubstr("HOST:PORT"));
}

class GpuDoctorTest : public ::testing::Test {
 protected:
  std::vector<Finding> On(const std::string& machine, const std::string& trainer) {
    const std::string program = folder_.File("trainer");
    std::ofstream(program) << "#!/bin/sh\n" << trainer;
    ::chmod(program.c_str(), 0700);
    return ExamineGpus(
        {.environment = {{"LOCKSTEP_NVML_LIBRARY", FAKE_NVML_DIR "/" + machine + "/libnvidia-ml.so.1"},
                         {"PATH", "/usr/bin:/bin"}},
         .trainer = program});
  }

 private:
  testing::TemporaryFolder folder_;
};

TEST_F(GpuDoctorTest, TriesEachGpuByItself) {
  const auto works =
      On("one_t4", "[ \"$*\" = 'matmul-demo --device GPU:0' ] && [ -n \"$CUDA_VISIBLE_DEVICES\" ]");
  EXPECT_EQ(About(works, "driver").level, Level::kFine);
  EXPECT_EQ(About(works, "GPU 0").level, Level::kFine);
  EXPECT_THAT(About(works, "GPU 0").what, HasSubstr("computes"));

  const Finding fails =
      About(On("one_t4", "echo '12:00:00 x: error: no kernel image' >&2; exit 10"), "GPU 0");
  EXPECT_EQ(fails.level, Level::kFault);
  EXPECT_THAT(fails.what, HasSubstr("does not compute: no kernel image"));
}

TEST(DoctorTest, SaysThatTheImageWantsANewerDriver) {
  const auto level = [](const std::string& driver, const std::string& image) {
    return ExamineDriver(driver, {{"CUDA_DRIVER_VERSION", image}}).level;
  };
  EXPECT_EQ(level("550.54.15", "550.54.14"), Level::kFine);
  EXPECT_EQ(level("550.54", "550.54"), Level::kFine);
  EXPECT_EQ(level("1000.1", "560.35.03"), Level::kFine);
  EXPECT_EQ(level("535.104.05", "550.54.14"), Level::kWarning);
  EXPECT_EQ(ExamineDriver("470.1", {}).level, Level::kFine) << "an image that does not say";
}

TEST(DoctorTest, ExaminesForFrameworksWhatIsThere) {
  const testing::TemporaryFolder root;
  const auto without = ExamineForFrameworks({.root = root.path()}, "");
  EXPECT_EQ(About(without, "/dev/shm").level, Level::kFault);
  EXPECT_THAT(FindingsText(without), Not(HasSubstr("driver")));
  const auto with = ExamineForFrameworks({.environment = {{"CUDA_DRIVER_VERSION", "999"}}}, "550.1");
  EXPECT_THAT(About(with, "driver").what, HasSubstr("older than 999"));
}

TEST_F(GpuDoctorTest, TellsALostGpuFromThoseThatCompute) {
  const std::string text = FindingsText(On("lost_gpu", "exit 0"));
  EXPECT_THAT(text, HasSubstr("computes"));
  EXPECT_THAT(text, ContainsRegex("Fault    GPU [0-9] .*\n *-> see dmesg"));
}

TEST_F(GpuDoctorTest, LooksAtSlicesRatherThanAtTheirGpu) {
  const auto findings = On("a100_mig", "case $CUDA_VISIBLE_DEVICES in GPU-00000000*) exit 1 ;; esac");
  EXPECT_THAT(findings, Each(Field(&Finding::level, Not(Level::kFault))));
  EXPECT_THAT(FindingsText(findings), HasSubstr("MIG-"));
}

TEST_F(GpuDoctorTest, SaysThatThereIsNoDriver) {
  const auto findings = On("no_driver", "exit 0");
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings.front().level, Level::kWarning);
}

TEST(FindingsTest, AreLinesForPeopleAndJsonForPrograms) {
  const std::vector<Finding> findings = {{Level::kFine, "memory", "1 GiB"},
                                         {Level::kFault, "/dev/shm", "is not \"there\"", "mount it"}};
  EXPECT_EQ(FindingsText(findings),
            "         memory    1 GiB\n"
            "Fault    /dev/shm  is not \"there\"\n"
            "                   -> mount it\n");
  const auto json = nlohmann::json::parse(FindingsJson(findings));
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[1]["level"], "Fault");
  EXPECT_EQ(json[1]["fix"], "mount it");
  EXPECT_FALSE(json[0].contains("fix"));
}

}  // namespace
}  // namespace lockstep::doctor
