#include "launcher/pmix/fences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <utility>

#include "tests/support/in_memory_store.h"

namespace lockstep::pmix {
namespace {

using ::lockstep::testing::InMemoryStore;
using ::testing::HasSubstr;

// The store of a job, as a client of it.
class Client : public contract::Store {
 public:
  explicit Client(InMemoryStore& store) : store_(store) {}
  Status Set(std::string_view key, std::string_view value, Deadline deadline) override {
    return store_.Set(key, value, deadline);
  }
  Result<std::string> Get(std::string_view key, Deadline deadline) override {
    return store_.Get(key, deadline);
  }
  Result<int64_t> Add(std::string_view key, int64_t amount, Deadline deadline) override {
    return store_.Add(key, amount, deadline);
  }
  Status Wait(const std::vector<std::string>& keys, Deadline deadline) override {
    return store_.Wait(keys, deadline);
  }

 private:
  InMemoryStore& store_;
};

class FencesTest : public ::testing::Test {
 protected:
  std::unique_ptr<Fences> OfMachine(size_t self) {
    return std::make_unique<Fences>(
        JobMap{.name_space = "job", .folder = "/f", .machines = {2, 1, 1}, .self = self}, link_);
  }

  static std::future<Result<std::string>> Enter(Fences& fences, const std::vector<int>& ranks,
                                                const std::string& contribution) {
    auto done = std::make_shared<std::promise<Result<std::string>>>();
    fences.Enter(ranks, contribution, [done](Result<std::string> all) { done->set_value(std::move(all)); });
    return done->get_future();
  }

  InMemoryStore store_;
  StoreLink link_{[this]() -> Result<std::unique_ptr<contract::Store>> {
    return std::unique_ptr<contract::Store>(std::make_unique<Client>(store_));
  }};
};

TEST_F(FencesTest, AllContributionsComeInTheOrderOfTheMachinesTimeAfterTime) {
  const auto first = OfMachine(0), second = OfMachine(1), third = OfMachine(2);
  for (const std::string round : {"1", "2", "3"}) {
    auto c = Enter(*third, {}, "c" + round), a = Enter(*first, {}, "a" + round);
    auto b = Enter(*second, {}, "b" + round);
    for (auto* heard : {&a, &b, &c}) EXPECT_EQ(*heard->get(), "a" + round + "b" + round + "c" + round);
  }
}

TEST_F(FencesTest, RanksOfSomeMachinesDoNotWaitForTheOthers) {
  const auto first = OfMachine(0), second = OfMachine(1), third = OfMachine(2);
  auto a = Enter(*first, {1, 3}, "a"), c = Enter(*third, {1, 3}, "c");
  EXPECT_EQ(*a.get(), "ac");
  EXPECT_EQ(*c.get(), "ac");
}

TEST_F(FencesTest, RanksOfOneMachineNeedNoStore) {
  StoreLink link([]() -> Result<std::unique_ptr<contract::Store>> { return Unavailable("not asked"); });
  Fences fences({.name_space = "job", .folder = "/f", .machines = {2, 1}, .self = 0}, link);
  EXPECT_EQ(*Enter(fences, {0, 1}, "mine").get(), "mine");
  const auto all = Enter(fences, {}, "mine").get();
  ASSERT_FALSE(all.ok());
  EXPECT_THAT(all.status().message(), HasSubstr("not asked"));
}

}  // namespace
}  // namespace lockstep::pmix
