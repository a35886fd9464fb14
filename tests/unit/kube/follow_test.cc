#include "launcher/kube/follow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "tests/unit/kube/scripted_server.h"

namespace lockstep::kube {
namespace {

using std::chrono::milliseconds;
using testing::ScriptedAnswer;
using testing::ScriptedServer;
using testing::SeenRequest;

// Writes down what it is told, in short.
class Diary : public FollowSink {
 public:
  explicit Diary(std::string until) : until_(std::move(until)) {}
  void Stops(Client* client) { client_ = client; }

  void BeginList() override { Note("begin"); }
  void Seen(Json& object) override { Note("seen " + object["metadata"]["name"].get<std::string>()); }
  void Gone(Json& object) override { Note("gone " + object["metadata"]["name"].get<std::string>()); }
  void EndList() override { Note("end"); }
  void Failed(const Error& error, milliseconds) override {
    Note("failed " + std::string(ReasonName(error.reason)));
  }

  const std::vector<std::string>& notes() const { return notes_; }

 private:
  void Note(std::string note) {
    notes_.push_back(std::move(note));
    if (notes_.back() == until_) client_->Stop();
  }
  const std::string until_;
  Client* client_ = nullptr;
  std::vector<std::string> notes_;
};

std::string List(const std::string& name, const std::string& version) {
  return Json{{"metadata", {{"resourceVersion", version}}},
              {"items", Json::array({{{"metadata", {{"name", name}, {"resourceVersion", "1"}}}}})}}
      .dump();
}
std::string Event(const char* type, const std::string& name, const std::string& version) {
  return Json{{"type", type}, {"object", {{"metadata", {{"name", name}, {"resourceVersion", version}}}}}}
             .dump() +
         "\n";
}
bool IsWatch(const SeenRequest& request) { return request.target.find("watch=1") != std::string::npos; }

std::vector<std::string> Told(ScriptedServer& server, const std::string& until) {
  const auto client = server.Connect();
  Diary diary(until);
  diary.Stops(client.get());
  Follow(*client, kPods, {.first_pause = milliseconds(1), .longest_pause = milliseconds(10)}, diary);
  return diary.notes();
}

TEST(FollowTest, ListsThenWatchesFromThere) {
  ScriptedServer server([](const SeenRequest& request, int) {
    if (!IsWatch(request)) return ScriptedAnswer{.body = List("a", "10")};
    return ScriptedAnswer{.pieces = {Event("MODIFIED", "a", "11"), Event("DELETED", "a", "12")}};
  });
  EXPECT_THAT(Told(server, "gone a"), ::testing::ElementsAre("begin", "seen a", "end", "seen a", "gone a"));
  EXPECT_THAT(server.requests()[1].target, ::testing::HasSubstr("resourceVersion=10"));
}

TEST(FollowTest, GoesOnAtTheLastBookmark) {
  ScriptedServer server([](const SeenRequest& request, int number) {
    if (!IsWatch(request)) return ScriptedAnswer{.body = List("a", "10")};
    if (number == 1) return ScriptedAnswer{.pieces = {Event("BOOKMARK", "", "50")}};
    return ScriptedAnswer{.pieces = {Event("DELETED", "a", "51")}};
  });
  EXPECT_EQ(Told(server, "gone a").back(), "gone a");
  EXPECT_THAT(server.requests()[2].target, ::testing::HasSubstr("resourceVersion=50"));
}

TEST(FollowTest, ListsAgainWhenItsPlaceIsTooOld) {
  for (const bool as_event : {false, true}) {
    ScriptedServer server([&](const SeenRequest& request, int number) {
      if (!IsWatch(request)) return ScriptedAnswer{.body = List(number == 0 ? "a" : "b", "10")};
      const Json status = {{"kind", "Status"}, {"code", 410}, {"reason", "Expired"}, {"message", "too old"}};
      if (as_event)
        return ScriptedAnswer{.pieces = {Json{{"type", "ERROR"}, {"object", status}}.dump() + "\n"}};
      return ScriptedAnswer{.status = 410, .body = status.dump()};
    });
    EXPECT_THAT(Told(server, "seen b"),
                ::testing::ElementsAre("begin", "seen a", "end", "begin", "seen b", "end"));
  }
}

TEST(FollowTest, TriesAgainWhatFails) {
  ScriptedServer server([](const SeenRequest& request, int number) {
    if (number == 0 || number == 2) return ScriptedAnswer{.status = 500, .body = "oh"};
    if (!IsWatch(request)) return ScriptedAnswer{.body = List("a", "10")};
    return ScriptedAnswer{.pieces = {Event("DELETED", "a", "12")}};
  });
  EXPECT_THAT(Told(server, "gone a"), ::testing::ElementsAre("begin", "failed ServerError", "begin", "seen a",
                                                             "end", "failed ServerError", "gone a"));
}

}  // namespace
}  // namespace lockstep::kube
