#include "launcher/spec/scalar.h"

#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::spec {
namespace {

TEST(ScalarTest, ReadsTheCoreSchema) {
  for (const char* text : {"", "~", "null", "Null", "NULL"}) {
    EXPECT_TRUE(std::holds_alternative<Null>(ResolvePlain(text))) << text;
  }
  for (const char* text : {"true", "True", "TRUE"}) EXPECT_TRUE(std::get<bool>(ResolvePlain(text))) << text;
  for (const char* text : {"false", "False", "FALSE"})
    EXPECT_FALSE(std::get<bool>(ResolvePlain(text))) << text;
  const std::vector<std::pair<const char*, int64_t>> integers = {{"0", 0},
                                                                 {"-0", 0},
                                                                 {"12", 12},
                                                                 {"+12", 12},
                                                                 {"-7", -7},
                                                                 {"0x1F", 31},
                                                                 {"0o17", 15},
                                                                 {"9223372036854775807", INT64_MAX},
                                                                 {"-9223372036854775808", INT64_MIN}};
  for (const auto& [text, value] : integers) EXPECT_EQ(std::get<int64_t>(ResolvePlain(text)), value) << text;
  const std::vector<std::pair<const char*, double>> numbers = {{"1.5", 1.5},  {".5", 0.5},     {"1.", 1},
                                                               {"1e3", 1000}, {"+1E-2", 0.01}, {"-.5e1", -5},
                                                               {"0.0", 0},    {"01.5", 1.5}};
  for (const auto& [text, value] : numbers)
    EXPECT_DOUBLE_EQ(std::get<double>(ResolvePlain(text)), value) << text;
  for (const char* text :
       {"tRue", "nil", "1.2.3", "1e",         "e1",   ".",  "-",  "+",     "0x",       "0xg",
        "0o8",  "12a", "1h30m", "2024-01-01", "1:30", "._", "-a", "0.5Gi", "infinity", "nan"}) {
    EXPECT_EQ(std::get<std::string_view>(ResolvePlain(text)), text);
  }
}

TEST(ScalarTest, RefusesWhatKubectlReadsDifferently) {
  for (const char* text : {"y",     "Y",     "yes",  "Yes",  "YES",   "on",   "On",  "ON",   "n",  "N",
                           "no",    "No",    "NO",   "off",  "Off",   "OFF",  "010", "-010", "08", "00",
                           "1_000", "1_0.5", "0b11", "-0b1", "-0x10", "0X1F", "0O7", "0x1_0"}) {
    EXPECT_TRUE(std::holds_alternative<Ambiguous>(ResolvePlain(text))) << text;
  }
}

TEST(ScalarTest, KnowsWhatNoNumberCanHold) {
  for (const char* text : {"9223372036854775808", "-9223372036854775809", "99999999999999999999999", "1e400",
                           "0x10000000000000000", ".inf", "-.INF", "+.Inf", ".nan", ".NaN"}) {
    EXPECT_TRUE(std::holds_alternative<OutOfRange>(ResolvePlain(text))) << text;
  }
}

TEST(QuantityTest, ReadsKubernetesNotation) {
  const std::vector<std::pair<const char*, int64_t>> quantities = {{"0", 0},
                                                                   {"1", 1},
                                                                   {"128974848", 128974848},
                                                                   {"129e6", 129000000},
                                                                   {"129M", 129000000},
                                                                   {"128974848000m", 128974848},
                                                                   {"123Mi", 128974848},
                                                                   {"1Ki", 1024},
                                                                   {"1k", 1000},
                                                                   {"1Gi", 1 << 30},
                                                                   {"0.5Gi", 1 << 29},
                                                                   {".5Ki", 512},
                                                                   {"1.5k", 1500},
                                                                   {"1E3", 1000},
                                                                   {"1E", 1000000000000000000},
                                                                   {"7Ei", 7LL << 60},
                                                                   {"+2Mi", 2 << 20},
                                                                   {"1.", 1},
                                                                   {"1m", 1},
                                                                   {"1n", 1},
                                                                   {"1001m", 2},
                                                                   {"1e-3", 1},
                                                                   {"0.0000000001", 1},
                                                                   {"9223372036854775807", INT64_MAX}};
  const std::regex pattern(kQuantityPattern);
  for (const auto& [text, bytes] : quantities) {
    EXPECT_EQ(ParseQuantity(text), bytes) << text;
    EXPECT_TRUE(std::regex_search(text, pattern)) << text;
  }
}

TEST(QuantityTest, RefusesTheRest) {
  const std::vector<const char*> not_quantities = {"",   "Gi",    "-1",  "1GB", "1 Gi", "1gi",
                                                   "1K", "1.2.3", "1e",  "1e+", "0x10", "1Gi ",
                                                   ".",  "+",     "1Zi", "1ei", "e3",   "1e1.5"};
  const std::regex pattern(kQuantityPattern);
  for (const char* text : not_quantities) {
    EXPECT_EQ(ParseQuantity(text), std::nullopt) << text;
    EXPECT_FALSE(std::regex_search(text, pattern)) << text;
  }
  for (const char* text :
       {"9223372036854775808", "8Ei", "10E", "1e19", "1e999", "99999999999999999999999999999999"}) {
    EXPECT_EQ(ParseQuantity(text), std::nullopt) << text;
  }
}

TEST(DurationTest, ReadsWholeSeconds) {
  const std::vector<std::pair<const char*, int64_t>> durations = {
      {"0s", 0},     {"30s", 30},      {"5m", 300},       {"1h30m", 5400}, {"1.5m", 90},
      {"2000ms", 2}, {"1h0m1s", 3601}, {"500ms500ms", 1}, {"24h", 86400}};
  const std::regex pattern(kDurationPattern);
  for (const auto& [text, seconds] : durations) {
    EXPECT_EQ(ParseDuration(text), std::chrono::seconds(seconds)) << text;
    EXPECT_TRUE(std::regex_search(text, pattern)) << text;
  }
  for (const char* text : {"", "30", "s", "-1s", "1d", "1h30", "500ms", "1.5s", "1 s", "999999999999h", ".5m",
                           "99999999999999999999999999s", "1.00000000000000000001h"}) {
    EXPECT_EQ(ParseDuration(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace lockstep::spec
