#include "launcher/placement/environment_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/temporary_folder.h"
#include "tests/unit/placement/builders.h"

namespace lockstep::placement {
namespace {

using lockstep::testing::TemporaryFolder;
using ::testing::ElementsAre;
using testing::Facts;
using ::testing::HasSubstr;
using testing::Machine;
using ::testing::Not;
using testing::ProgramJob;
using testing::Value;

Result<std::vector<FileVariable>> Parse(std::string_view text) { return ParseEnvironmentFile("a.env", text); }

TEST(EnvironmentFileTest, TakesAllAfterTheFirstEqualsAsItIs) {
  const auto read = Parse(
      "\xef\xbb\xbf# a comment = none\n"
      "\n"
      "PLAIN=value\n"
      "  \tINDENTED=1\n"
      "EMPTY=\n"
      "_b2=\"quoted\" $HOME # no comment\\n = \r\n"
      "   \n"
      "LAST= blanks ");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_THAT(*read,
              ElementsAre(FileVariable{"PLAIN", "value", "a.env", 3},
                          FileVariable{"INDENTED", "1", "a.env", 4}, FileVariable{"EMPTY", "", "a.env", 5},
                          FileVariable{"_b2", "\"quoted\" $HOME # no comment\\n = ", "a.env", 6},
                          FileVariable{"LAST", " blanks ", "a.env", 8}));
  EXPECT_THAT(*Parse(""), ElementsAre());
}

TEST(EnvironmentFileTest, NamesTheLineThatIsWrongAndTellsNothingOfIt) {
  using namespace std::string_literals;
  const struct {
    std::string text;
    const char* message;
  } kWrong[] = {
      {"A=1\nhunter2\n", "a.env:2: there is no =; a line is NAME=VALUE or a # comment"},
      {"=hunter2", "a.env:1: what is before the = is not a variable's name"},
      {"hunter2 more=x", "a.env:1: what is before the = is not"},
      {"export A=hunter2", "a.env:1: what is before the = is not"},
      {"1A=hunter2", "a.env:1: what is before the = is not"},
      {"A =hunter2", "a.env:1: what is before the = is not"},
      {"\xc3\xa4=hunter2", "a.env:1: what is before the = is not"},
      {"A=hunter2\nB=\n#\nA=hunter2\n", "a.env:4: A is set in line 1 already; keep one of them"},
      {"A=hun\0ter2"s, "a.env:1: the value of A holds a zero byte"},
  };
  for (const auto& wrong : kWrong) {
    const auto read = Parse(wrong.text);
    EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument) << wrong.text;
    EXPECT_THAT(read.status().message(), HasSubstr(wrong.message));
    EXPECT_THAT(read.status().message(), Not(HasSubstr("hun")));
  }
}

class EnvironmentFilesTest : public ::testing::Test {
 protected:
  spec::TrainingJob Job(std::vector<std::string> files) const {
    spec::TrainingJob job = ProgramJob(spec::Framework::kNone);
    job.roles[0].processes_per_replica = 1;
    job.program->environment_files = std::move(files);
    return job;
  }
  Result<Plan> PlanOf(const spec::TrainingJob& job, const Environment& inherited = {}) const {
    GenerationFacts facts = Facts();
    facts.inherited = inherited;
    auto files = ReadEnvironmentFiles(job, "worker");
    LOCKSTEP_RETURN_IF_ERROR(files.status());
    facts.environment_files = std::move(*files);
    return Assign(job, {.inventory = Machine(1, 1), .inherited = inherited}, facts);
  }

  const TemporaryFolder folder_;
};

TEST_F(EnvironmentFilesTest, CountLessThanTheManifestAndMoreThanWhatIsInherited) {
  const std::string first = folder_.Write("first.env", "A=first\nB=first\nC=first\nOMP_NUM_THREADS=7\n");
  const std::string second = folder_.Write("second.env", "B=second\nC=second\n");
  spec::TrainingJob job = Job({first, second});
  job.program->environment = {{"C", "manifest"}};
  job.program->prepare = {"download"};
  const auto plan = PlanOf(job, {{"A", "inherited"}, {"D", "inherited"}});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const ProcessPlan& process = plan->processes[0];
  for (const Variables& environment : {process.environment, plan->prepare[0].environment}) {
    EXPECT_EQ(Value(environment, "A"), "first");
    EXPECT_EQ(Value(environment, "B"), "second");
    EXPECT_EQ(Value(environment, "C"), "manifest");
    EXPECT_EQ(Value(environment, "D"), "inherited");
  }
  EXPECT_EQ(process.devices.threads, 7) << "the user has chosen";
  EXPECT_THAT(process.from_files, ElementsAre(std::pair("A", first), std::pair("B", second),
                                              std::pair("OMP_NUM_THREADS", first)));
  EXPECT_THAT(plan->prepare[0].environment_files, ElementsAre(first, second));
}

TEST_F(EnvironmentFilesTest, MayNotSetWhatIsTheLaunchers) {
  const std::string file = folder_.Write("a.env", "MODE=x\nRANK=hunter2\n");
  EXPECT_EQ(PlanOf(Job({file})).status().message(), file + ":2: RANK is set by Lockstep; leave it out");
}

TEST_F(EnvironmentFilesTest, AreNamedWhereTheyCannotBeRead) {
  const std::string absent = folder_.File("absent.env");
  EXPECT_THAT(ReadEnvironmentFiles(Job({absent}), "").status().message(),
              HasSubstr("spec.program.envFiles: " + absent + ": No such file"));
  const std::string fifo = folder_.File("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {fifo, folder_.path().string(), std::string("/dev/zero")}) {
    EXPECT_THAT(ReadEnvironmentFiles(Job({path}), "").status().message(),
                HasSubstr(path + " is not a regular file"));
  }
  const std::string most = folder_.Write("most", "#" + std::string(kMaxEnvironmentFileBytes - 1, 'x'));
  EXPECT_TRUE(ReadEnvironmentFiles(Job({most}), "").ok());
  const std::string large = folder_.Write("large", "#" + std::string(kMaxEnvironmentFileBytes, 'x'));
  EXPECT_THAT(ReadEnvironmentFiles(Job({large}), "").status().message(), HasSubstr("has more than 256 KiB"));
}

TEST_F(EnvironmentFilesTest, AreReadForTheRolesThatAreHere) {
  spec::TrainingJob job = ProgramJob(spec::Framework::kNone);
  job.roles.resize(2);
  job.roles[0].name = "chief";
  job.roles[1].name = "worker";
  job.roles[0].program = job.program;
  job.roles[0].program->environment_files = {folder_.File("absent.env")};
  EXPECT_TRUE(ReadEnvironmentFiles(job, "worker").ok());
  EXPECT_FALSE(ReadEnvironmentFiles(job, "chief").ok());
  EXPECT_FALSE(ReadEnvironmentFiles(job, "").ok());
}

}  // namespace
}  // namespace lockstep::placement
