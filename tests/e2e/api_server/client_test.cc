#include <gmock/gmock.h>

#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "launcher/kube/follow.h"
#include "launcher/kube/lease.h"
#include "tests/e2e/api_server/api_server.h"

namespace lockstep::testing {
namespace {

using kube::Json;
using kube::Reason;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kPatience{30};

class ClientOnApiServerTest : public ApiServerTest {
 protected:
  Json ConfigMap(const std::string& name, const std::string& value, const std::string& label = "x") const {
    return {{"metadata", {{"name", name}, {"labels", {{"test", label}}}}}, {"data", {{"key", value}}}};
  }
  kube::ObjectName Named(const std::string& name) const { return {.space = space_, .name = name}; }
};

TEST_F(ClientOnApiServerTest, WritesAndReadsAnObject) {
  const auto created = client_->Create(kube::kConfigMaps, space_, ConfigMap("a", "1"));
  ASSERT_TRUE(created.ok()) << created.error().message;
  EXPECT_EQ((*created)["kind"], "ConfigMap");
  EXPECT_TRUE(
      client_->Create(kube::kConfigMaps, space_, ConfigMap("a", "1")).failed_with(Reason::kAlreadyExists));

  Json object = *created;
  object["data"]["key"] = "2";
  const auto updated = client_->Update(kube::kConfigMaps, Named("a"), object);
  ASSERT_TRUE(updated.ok()) << updated.error().message;
  EXPECT_TRUE(client_->Update(kube::kConfigMaps, Named("a"), object).failed_with(Reason::kConflict))
      << "an old resourceVersion";

  const auto patched = client_->MergePatch(kube::kConfigMaps, Named("a"), {{"data", {{"more", "3"}}}});
  ASSERT_TRUE(patched.ok()) << patched.error().message;
  const auto read = client_->Get(kube::kConfigMaps, Named("a"));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ((*read)["data"], Json({{"key", "2"}, {"more", "3"}}));
  const std::string old_version = (*updated)["metadata"]["resourceVersion"];
  EXPECT_TRUE(client_
                  ->MergePatch(kube::kConfigMaps, Named("a"),
                               {{"metadata", {{"resourceVersion", old_version}}}, {"data", {{"key", "4"}}}})
                  .failed_with(Reason::kConflict));
}

TEST_F(ClientOnApiServerTest, AppliesOnlyWhatIsItsOwn) {
  Json object = {{"data", {{"key", "1"}}}};
  const auto applied = client_->Apply(kube::kConfigMaps, Named("a"), object);
  ASSERT_TRUE(applied.ok()) << applied.error().message;
  const auto again = client_->Apply(kube::kConfigMaps, Named("a"), object);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*again)["metadata"]["resourceVersion"], (*applied)["metadata"]["resourceVersion"])
      << "nothing changed";

  const auto other = Connect({.requests_per_second = 0, .field_manager = "other"});
  object["data"]["key"] = "2";
  EXPECT_TRUE(other->Apply(kube::kConfigMaps, Named("a"), object).failed_with(Reason::kConflict));
  EXPECT_TRUE(other->Apply(kube::kConfigMaps, Named("a"), object, {.force = true}).ok());
  object["metadata"]["uid"] = (*applied)["metadata"]["uid"];
  EXPECT_TRUE(other->Apply(kube::kConfigMaps, Named("gone"), object).failed_with(Reason::kConflict))
      << "with a uid nothing is created";
}

TEST_F(ClientOnApiServerTest, DeletesOnlyTheObjectThatIsMeant) {
  const auto created = client_->Create(kube::kConfigMaps, space_, ConfigMap("a", "1"));
  ASSERT_TRUE(created.ok());
  EXPECT_TRUE(
      client_->Delete(kube::kConfigMaps, Named("a"), {.uid = "another"}).failed_with(Reason::kConflict));
  EXPECT_TRUE(client_->Delete(kube::kConfigMaps, Named("a"), {.call = {.dry_run = true}}).ok());
  ASSERT_TRUE(client_->Get(kube::kConfigMaps, Named("a")).ok());
  EXPECT_TRUE(client_->Delete(kube::kConfigMaps, Named("a"), {.uid = (*created)["metadata"]["uid"]}).ok());
  EXPECT_TRUE(client_->Get(kube::kConfigMaps, Named("a")).failed_with(Reason::kNotFound));
}

TEST_F(ClientOnApiServerTest, SaysWhatIsWrong) {
  const Json job = {{"metadata", {{"name", "x"}}}, {"spec", {{"replicas", 0}}}};
  const auto refused = client_->Create(kube::kTrainingJobs, space_, job);
  ASSERT_TRUE(refused.failed_with(Reason::kInvalid));
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("neither trainer nor program is given"));
  EXPECT_THAT(refused.error().message, ::testing::StartsWith("create trainingjobs " + space_ + "/x: "));

  kube::Config stranger = config_;
  stranger.client_certificate_pem = stranger.client_key_pem = "";
  stranger.token_file = "";
  stranger.token = "not-a-token-of-this-server";
  const auto client = kube::Client::Make(stranger);
  ASSERT_TRUE(client.ok());
  const auto denied = (*client)->Get(kube::kConfigMaps, Named("a"));
  ASSERT_TRUE(denied.failed_with(Reason::kUnauthorized)) << denied.error().message;
  EXPECT_THAT(denied.error().message, ::testing::Not(::testing::HasSubstr("not-a-token")));
}

TEST_F(ClientOnApiServerTest, TrustsTheGivenAuthorityOnly) {
  kube::Config config = config_;
  config.ca_pem = "";
  config.skip_verification = false;
  auto client = kube::Client::Make(config);
  ASSERT_TRUE(client.ok());
  auto answer = (*client)->GetText("/version");
  ASSERT_TRUE(answer.failed_with(Reason::kUnreachable));
  EXPECT_THAT(answer.error().message, ::testing::HasSubstr("certificate"));

  config = config_;
  config.server_name = "somebody.else";
  client = kube::Client::Make(config);
  ASSERT_TRUE(client.ok());
  EXPECT_TRUE((*client)->GetText("/version").failed_with(Reason::kUnreachable));
}

TEST_F(ClientOnApiServerTest, ListsPageByPage) {
  for (int i = 0; i < 25; ++i) {
    ASSERT_TRUE(client_
                    ->Create(kube::kConfigMaps, space_,
                             ConfigMap("n" + std::to_string(i), "1", i % 2 == 0 ? "even" : "odd"))
                    .ok());
  }
  std::set<std::string> names;
  const auto version =
      client_->List(kube::kConfigMaps, {.space = space_, .label_selector = "test=even", .page = 4},
                    [&](Json& object) { EXPECT_TRUE(names.insert(object["metadata"]["name"]).second); });
  ASSERT_TRUE(version.ok()) << version.error().message;
  EXPECT_FALSE(version->empty());
  EXPECT_EQ(names.size(), 13u);
}

TEST_F(ClientOnApiServerTest, WatchesFromWhereAListEnds) {
  ASSERT_TRUE(client_->Create(kube::kConfigMaps, space_, ConfigMap("before", "1")).ok());
  const auto version = client_->List(kube::kConfigMaps, {.space = space_}, [](Json&) {});
  ASSERT_TRUE(version.ok());
  ASSERT_TRUE(client_->Create(kube::kConfigMaps, space_, ConfigMap("a", "1")).ok());
  ASSERT_TRUE(client_->MergePatch(kube::kConfigMaps, Named("a"), {{"data", {{"key", "2"}}}}).ok());
  ASSERT_TRUE(client_->Delete(kube::kConfigMaps, Named("a")).ok());
  std::vector<kube::EventType> types;
  const auto watched = client_->Watch(
      kube::kConfigMaps,
      {.space = space_, .label_selector = "test", .resource_version = *version, .duration = kPatience},
      [&](kube::EventType type, Json& object) {
        EXPECT_EQ(object["metadata"]["name"], "a");
        types.push_back(type);
        return type != kube::EventType::kDeleted;
      });
  ASSERT_TRUE(watched.ok()) << watched.error().message;
  using enum kube::EventType;
  EXPECT_THAT(types, ::testing::ElementsAre(kAdded, kModified, kDeleted));
}

// Keeps the names that are there, and says when something has changed.
class Names : public kube::FollowSink {
 public:
  void BeginList() override { listed_.clear(); }
  void Seen(Json& object) override {
    const std::lock_guard lock(mutex_);
    (synced_ ? names_ : listed_).insert(object["metadata"]["name"].get<std::string>());
    changed_.notify_all();
  }
  void Gone(Json& object) override {
    const std::lock_guard lock(mutex_);
    names_.erase(object["metadata"]["name"].get<std::string>());
    changed_.notify_all();
  }
  void EndList() override {
    const std::lock_guard lock(mutex_);
    names_ = listed_;
    synced_ = true;
    changed_.notify_all();
  }
  void Failed(const kube::Error& error, milliseconds) override { ADD_FAILURE() << error.message; }

  bool WaitFor(const std::set<std::string>& names) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return synced_ && names_ == names; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> listed_;
  std::set<std::string> names_;
  bool synced_ = false;
};

TEST_F(ClientOnApiServerTest, FollowsWhatThereIs) {
  ASSERT_TRUE(client_->Create(kube::kConfigMaps, space_, ConfigMap("a", "1")).ok());
  const auto follower = Connect();
  Names names;
  std::thread thread([&] {
    // A watch a second, so that several of them follow one another.
    kube::Follow(*follower, kube::kConfigMaps,
                 {.space = space_, .label_selector = "test", .watch_duration = seconds(1)}, names);
  });
  EXPECT_TRUE(names.WaitFor({"a"}));
  ASSERT_TRUE(client_->Create(kube::kConfigMaps, space_, ConfigMap("b", "1")).ok());
  EXPECT_TRUE(names.WaitFor({"a", "b"}));
  client_->Sleep(milliseconds(1500));  // past the end of the first watch
  ASSERT_TRUE(client_->Delete(kube::kConfigMaps, Named("a")).ok());
  EXPECT_TRUE(names.WaitFor({"b"}));
  const auto began = std::chrono::steady_clock::now();
  follower->Stop();
  thread.join();
  EXPECT_LT(std::chrono::steady_clock::now() - began, seconds(5));
}

TEST_F(ClientOnApiServerTest, OneOfTwoHoldsALease) {
  const auto lock = [&](const std::string& identity) {
    return kube::LeaseLock(client_.get(),
                           {.name = Named("leader"), .identity = identity, .duration = seconds(15)});
  };
  kube::LeaseLock first = lock("first");
  kube::LeaseLock second = lock("second");
  const auto now = std::chrono::steady_clock::now();
  const auto held = first.TryHold(now);
  ASSERT_TRUE(held.ok()) << held.error().message;
  EXPECT_TRUE(held->held);
  EXPECT_EQ(held->held_until, now + seconds(15));
  auto other = second.TryHold(now);
  ASSERT_TRUE(other.ok());
  EXPECT_FALSE(other->held);
  EXPECT_EQ(other->holder, "first");

  // Renewed meanwhile: its fifteen seconds begin again for whoever watches it.
  ASSERT_TRUE(first.TryHold(now + seconds(10)).ok());
  EXPECT_FALSE(second.TryHold(now + seconds(16))->held);
  EXPECT_FALSE(second.TryHold(now + seconds(30))->held);
  other = second.TryHold(now + seconds(31));
  ASSERT_TRUE(other.ok()) << other.error().message;
  EXPECT_TRUE(other->held);
  EXPECT_EQ(other->transitions, 1);
  EXPECT_FALSE(first.TryHold(now + seconds(32))->held);

  ASSERT_TRUE(second.Release().ok());
  const auto back = first.TryHold(now + seconds(33));
  ASSERT_TRUE(back.ok());
  EXPECT_TRUE(back->held) << "given back, not run out";
}

}  // namespace
}  // namespace lockstep::testing
