#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/launcher_process.h"

// What the shells themselves make of `lockstep completion`.
namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Shell {
  std::string name;
  std::vector<std::string>
      command;  // prints what may follow its arguments, the first of which is the program's path
};

// (The last one's own completion needs a terminal; here stands what it calls.)
const Shell kShells[] = {
    {"bash", {"bash", "-c", R"(PATH=$(dirname "$0"):$PATH; source <(lockstep completion bash)
COMP_WORDS=(lockstep "$@") COMP_CWORD=$#; _lockstep; printf '%s\n' "${COMPREPLY[@]}")"}},
    {"fish",
     {"fish", "--no-config", "-c", R"(set PATH (dirname $argv[1]) $PATH; lockstep completion fish | source
complete -C (string join ' ' -- lockstep $argv[2..-1]))"}},
    {"zsh", {"zsh", "-f", "-c", R"(PATH=$(dirname "$0"):$PATH
compdef() { }; _files() { }; _describe() { print -rl -- "${(@P)2}" }
source <(lockstep completion zsh); words=(lockstep "$@") CURRENT=$((# + 1)); _lockstep)"}}};

class CompletionTest : public ::testing::TestWithParam<Shell> {
 protected:
  void SetUp() override {
    if (std::system(("command -v " + GetParam().name + " >/dev/null").c_str()) != 0) {
      GTEST_SKIP() << "no " << GetParam().name << " here";
    }
  }
  std::string After(std::vector<std::string> words) {
    LauncherProcess process(
        {.arguments = std::move(words), .environment = environment_, .wrapper = GetParam().command});
    EXPECT_EQ(process.Wait(), 0) << process.err();
    EXPECT_EQ(process.err(), "");
    return process.out();
  }
  std::vector<std::pair<std::string, std::string>> environment_;
};

TEST_P(CompletionTest, OfCommands) {
  EXPECT_THAT(After({"r"}), AllOf(HasSubstr("run"), HasSubstr("runs"), Not(HasSubstr("validate"))));
  EXPECT_THAT(After({"runs", ""}), AllOf(HasSubstr("list"), HasSubstr("show"), HasSubstr("plot")));
  EXPECT_THAT(After({"comp"}), AllOf(HasSubstr("completion"), Not(HasSubstr("complete\n"))));
}

TEST_P(CompletionTest, OfOptionsAndTheirValues) {
  EXPECT_THAT(After({"run", "--tr"}), AllOf(HasSubstr("--trace"), Not(HasSubstr("--log-format"))));
  EXPECT_THAT(After({"devices", "--output", "j"}), AllOf(HasSubstr("json"), Not(HasSubstr("text"))));
}

TEST_P(CompletionTest, OfRuns) {
  TemporaryFolder state;
  std::filesystem::create_directories(state.path() / "lockstep/runs/digits/20260102T030405Z-7");
  environment_ = {{"XDG_STATE_HOME", state.path().string()}};
  EXPECT_THAT(After({"runs", "show", "dig"}), HasSubstr("digits/20260102T030405Z-7"));
}

INSTANTIATE_TEST_SUITE_P(Shells, CompletionTest, ::testing::ValuesIn(kShells),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lockstep::testing
