#include "launcher/http/accept.h"

#include <gtest/gtest.h>

namespace lockstep::http {
namespace {

TEST(AcceptTest, ReadsElementsWithTheirParametersAndWeights) {
  const auto all = ParseAccepted("Text/Plain; Version=0.0.4;q=0.5, */* ;q=0.1,gzip");
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].value, "text/plain");
  EXPECT_EQ(all[0].parameters.at("version"), "0.0.4");
  EXPECT_FALSE(all[0].parameters.contains("q"));
  EXPECT_EQ(all[0].q, 0.5);
  EXPECT_EQ(all[1].value, "*/*");
  EXPECT_EQ(all[1].q, 0.1);
  EXPECT_EQ(all[2].q, 1);
  for (const char* wrong : {"a;q=2", "a;q=-1", "a;q=x", "a;q=", "a;q=1e999", "a;q=nan"}) {
    EXPECT_EQ(ParseAccepted(wrong).at(0).q, 0) << wrong;
  }
}

TEST(AcceptTest, GzipGoesToWhoTakesIt) {
  for (const char* yes : {"gzip", "GZIP", "x-gzip", "deflate, gzip;q=0.1", "*", "br;q=1.0, *;q=0.5"}) {
    EXPECT_TRUE(AcceptsGzip(yes)) << yes;
  }
  for (const char* no :
       {"", "identity", "gzip;q=0", "*;q=0", "gzip;q=0, *", "br", "gzip;q=nonsense", ",;,"}) {
    EXPECT_FALSE(AcceptsGzip(no)) << no;
  }
}

}  // namespace
}  // namespace lockstep::http
