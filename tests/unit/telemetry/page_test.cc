#include "launcher/telemetry/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <string>
#include <string_view>

namespace lockstep::telemetry {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What a browser computes of an element's text.
std::string HashOf(std::string_view text) {
  unsigned char digest[32];
  EXPECT_EQ(EVP_Digest(text.data(), text.size(), digest, nullptr, EVP_sha256(), nullptr), 1);
  unsigned char base64[64];
  const int size = EVP_EncodeBlock(base64, digest, sizeof digest);
  return "'sha256-" + std::string(reinterpret_cast<char*>(base64), static_cast<size_t>(size)) + "'";
}

std::string Between(const std::string& text, const std::string& open, const std::string& close) {
  const size_t from = text.find(open);
  EXPECT_NE(from, std::string::npos);
  EXPECT_EQ(text.find(open, from + 1), std::string::npos) << open << " is there twice";
  return text.substr(from + open.size(), text.find(close, from) - from - open.size());
}

class PageTest : public ::testing::TestWithParam<Page (*)()> {};

TEST_P(PageTest, ThePolicyAllowsThePagesOwnStyleAndScriptAndNothingElse) {
  const Page page = GetParam()();
  EXPECT_EQ(
      page.policy,
      "default-src 'none'; script-src " + HashOf(Between(page.html, "<script>", "</script>")) +
          "; style-src " + HashOf(Between(page.html, "<style>", "</style>")) +
          "; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
}

// The policy would stop them; here they are found without a browser.
TEST_P(PageTest, NothingInItIsInlineOrFromElsewhere) {
  const Page page = GetParam()();
  for (const char* never : {" style=", " onclick=", "src=", "innerHTML", "insertAdjacentHTML", "outerHTML",
                            "document.write", "eval(", "@style@", "@script@", "https://"}) {
    EXPECT_THAT(page.html, Not(HasSubstr(never)));
  }
  EXPECT_TRUE(page.html.starts_with("<!DOCTYPE html>"));
}

INSTANTIATE_TEST_SUITE_P(Both, PageTest, ::testing::Values(&JobPage, &JobsPage),
                         [](const auto& info) { return info.index == 0 ? "OfAJob" : "OfJobs"; });

}  // namespace
}  // namespace lockstep::telemetry
