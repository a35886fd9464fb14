#include "common/contract/token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "tests/unit/rendezvous/rendezvous_testing.h"

namespace lockstep::contract {
namespace {

using rendezvous::testing::TemporaryFolder;
using ::testing::HasSubstr;

std::string ContentOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

mode_t ModeOf(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0);
  return info.st_mode & 07777;
}

void Write(const std::string& path, const std::string& content, mode_t mode) {
  std::ofstream(path) << content;
  ASSERT_EQ(::chmod(path.c_str(), mode), 0);
}

TEST(TokenTest, IsReadBackAsItWasCreated) {
  const TemporaryFolder folder;
  const Result<Token> created = Token::Create(folder.File("token"));
  ASSERT_TRUE(created.ok()) << created.status().ToString();
  const Result<Token> read = Token::Read(folder.File("token"));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(created->bytes(), read->bytes());
  EXPECT_EQ(created->bytes().size(), 32u);
}

TEST(TokenTest, TwoAreNeverTheSame) { EXPECT_NE(Token::Random().bytes(), Token::Random().bytes()); }

TEST(TokenTest, FileIsOfMode0600WhateverTheUmask) {
  const TemporaryFolder folder;
  for (const mode_t umask : {0000, 0022, 0777}) {
    const std::string path = folder.File("token" + std::to_string(umask));
    const mode_t before = ::umask(umask);
    const bool created = Token::Create(path).ok();
    ::umask(before);
    EXPECT_TRUE(created);
    EXPECT_EQ(ModeOf(path), 0600u);
  }
}

TEST(TokenTest, DoesNotTakeOverWhatIsThere) {
  const TemporaryFolder folder;
  Write(folder.File("file"), "mine", 0600);
  EXPECT_EQ(Token::Create(folder.File("file")).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(ContentOf(folder.File("file")), "mine");
  ASSERT_EQ(::symlink(folder.File("elsewhere").c_str(), folder.File("link").c_str()), 0);
  EXPECT_FALSE(Token::Create(folder.File("link")).ok());
  EXPECT_NE(::access(folder.File("elsewhere").c_str(), F_OK), 0);
}

TEST(TokenTest, RefusesAFileThatOthersCanReadAndSaysWhatIsRight) {
  const TemporaryFolder folder;
  const std::string path = folder.File("token");
  ASSERT_TRUE(Token::Create(path).ok());
  for (const mode_t mode : {0640, 0604, 0620, 0601, 0666}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    const Status status = Token::Read(path).status();
    EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
    EXPECT_THAT(status.message(), HasSubstr("must be 0600"));
    EXPECT_THAT(status.message(), HasSubstr(path));
  }
  ASSERT_EQ(::chmod(path.c_str(), 0400), 0);
  EXPECT_TRUE(Token::Read(path).ok());
}

TEST(TokenTest, RefusesAFileOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  const TemporaryFolder folder;
  const std::string path = folder.File("token");
  ASSERT_TRUE(Token::Create(path).ok());
  ASSERT_EQ(::chown(path.c_str(), 12345, 12345), 0);
  const Status status = Token::Read(path).status();
  EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(status.message(), HasSubstr("12345"));
}

TEST(TokenTest, RefusesWhatIsNoToken) {
  const TemporaryFolder folder;
  const std::string good(64, 'a');
  const std::string path = folder.File("token");
  for (const std::string& content : {std::string(), std::string("secret\n"), good.substr(1), good + "a",
                                     good + "\n\n", std::string(64, 'g'), std::string(64, 'A')}) {
    Write(path, content, 0600);
    EXPECT_EQ(Token::Read(path).status().code(), StatusCode::kInvalidArgument) << content;
  }
  Write(path, good, 0600);
  EXPECT_TRUE(Token::Read(path).ok());
  EXPECT_EQ(Token::Read(folder.File("none")).status().code(), StatusCode::kNotFound);
  ASSERT_EQ(::mkfifo(folder.File("fifo").c_str(), 0600), 0);
  EXPECT_EQ(Token::Read(folder.File("fifo")).status().code(), StatusCode::kInvalidArgument);
}

TEST(TokenTest, ErrorsDoNotGiveTheContentAway) {
  const TemporaryFolder folder;
  Write(folder.File("token"), "hunter2", 0600);
  EXPECT_EQ(Token::Read(folder.File("token")).status().message().find("hunter2"), std::string::npos);
}

TEST(ConstantTimeEqualTest, IsEquality) {
  EXPECT_TRUE(ConstantTimeEqual("abc", "abc"));
  EXPECT_FALSE(ConstantTimeEqual("abc", "abd"));
  EXPECT_FALSE(ConstantTimeEqual("abc", "ab"));
  EXPECT_TRUE(ConstantTimeEqual("", ""));
}

}  // namespace
}  // namespace lockstep::contract
