#include "launcher/rendezvous/store_table.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::rendezvous {
namespace {

using Keys = std::vector<std::string>;

TEST(StoreTableTest, WaiterIsServedOnceWhenItsLastKeyComes) {
  StoreTable table(1 << 20);
  ASSERT_TRUE(table.Set("a", "1").ok());
  int served = 0;
  ASSERT_TRUE(table.Await({"a", "b", "c", "b"}, [&] { ++served; }).ok());
  ASSERT_TRUE(table.Set("c", "3").ok());
  EXPECT_EQ(served, 0);
  ASSERT_TRUE(table.Set("b", "2").ok());
  EXPECT_EQ(served, 1);
  ASSERT_TRUE(table.Set("b", "again").ok());
  EXPECT_EQ(served, 1);
  EXPECT_EQ(*table.Find("b"), "again");
  EXPECT_EQ(table.waiters(), 0u);
}

TEST(StoreTableTest, ValueIsThereWhenTheWaiterIsServed) {
  StoreTable table(1 << 20);
  std::string seen;
  ASSERT_TRUE(table.Await({"a"}, [&] { seen = *table.Find("a"); }).ok());
  ASSERT_TRUE(table.Set("a", "1").ok());
  EXPECT_EQ(seen, "1");
}

TEST(StoreTableTest, WaiterMayWaitAgainFromWithin) {
  StoreTable table(1 << 20);
  std::vector<std::string> order;
  ASSERT_TRUE(table
                  .Await({"a"},
                         [&] {
                           order.push_back("a");
                           ASSERT_TRUE(table.Await({"b"}, [&] { order.push_back("b"); }).ok());
                           ASSERT_TRUE(table.Set("b", "").ok());
                         })
                  .ok());
  ASSERT_TRUE(table.Set("a", "").ok());
  EXPECT_EQ(order, (Keys{"a", "b"}));
}

TEST(StoreTableTest, SaysWhatIsMissing) {
  StoreTable table(1 << 20);
  ASSERT_TRUE(table.Set("b", "").ok());
  EXPECT_EQ(table.Missing({"c", "b", "a"}), (Keys{"c", "a"}));
  const auto waiter = table.Await({"c", "a"}, [] {});
  ASSERT_TRUE(table.Set("a", "").ok());
  EXPECT_EQ(table.MissingOf(*waiter), Keys{"c"});
}

TEST(StoreTableTest, ForgottenWaiterIsNotServed) {
  StoreTable table(1 << 20);
  const size_t before = table.bytes();
  const auto waiter = table.Await({"a"}, [] { FAIL(); });
  EXPECT_GT(table.bytes(), before);
  table.Forget(*waiter);
  table.Forget(*waiter);
  EXPECT_EQ(table.bytes(), before);
  ASSERT_TRUE(table.Set("a", "").ok());
}

TEST(StoreTableTest, IsBoundedAndUnchangedWhenFull) {
  StoreTable table(10'000);
  const std::string big(4'000, 'x');
  ASSERT_TRUE(table.Set("a", big).ok());
  ASSERT_TRUE(table.Set("b", big).ok());
  const size_t bytes = table.bytes();
  EXPECT_EQ(table.Set("c", big).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(table.Find("c"), nullptr);
  EXPECT_EQ(table.Set("a", big + big).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(table.Find("a")->size(), big.size());
  EXPECT_EQ(table.Await(Keys(100, "k"), [] {}).ok(), true);
  Keys many;
  for (int i = 0; i < 100; ++i) many.push_back("key" + std::to_string(i));
  EXPECT_EQ(table.Await(many, [] {}).status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(table.Set("a", "").ok());
  EXPECT_LT(table.bytes(), bytes);
  EXPECT_TRUE(table.Set("c", big).ok());
  table.Clear();
  EXPECT_EQ(table.bytes(), 0u);
  EXPECT_EQ(table.Find("c"), nullptr);
}

}  // namespace
}  // namespace lockstep::rendezvous
