#include "launcher/telemetry/event_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace lockstep::telemetry {
namespace {

using contract::Event;
using testing::HasSubstr;

class EventReaderTest : public testing::Test {
 protected:
  int Feed(std::string_view bytes) { return reader_.Feed(bytes, Collect()); }
  int Finish() { return reader_.Finish(Collect()); }
  EventReader::EventCallback Collect() {
    return [this](const Event& event) { events_.push_back(event); };
  }

  EventReader reader_;
  std::vector<Event> events_;
};

TEST_F(EventReaderTest, PutsTogetherLinesHoweverTheyAreCut) {
  const std::string stream = R"({"event":"step","step":7,"loss":0.5})"
                             "\n"
                             R"({"event":"ready"})"
                             "\r\n\n"
                             R"({"event":"phase","phase":"Evaluating"})"
                             "\n";
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    events_.clear();
    reader_ = EventReader();
    for (size_t at = 0; at < stream.size(); at += piece) EXPECT_EQ(Feed(stream.substr(at, piece)), 0);
    ASSERT_EQ(events_.size(), 3u) << piece;
    EXPECT_EQ(std::get<contract::StepEvent>(events_[0]).step, 7);
    EXPECT_TRUE(std::holds_alternative<contract::ReadyEvent>(events_[1]));
    EXPECT_EQ(std::get<contract::PhaseEvent>(events_[2]).phase, "Evaluating");
  }
}

TEST_F(EventReaderTest, CountsMalformedLinesAndGoesOn) {
  EXPECT_EQ(Feed("hello\n{\"event\":\"ready\"}\n{\"event\":\"step\",\"step\":-1}\n[]\n"), 3);
  EXPECT_EQ(events_.size(), 1u);
  EXPECT_EQ(reader_.malformed(), 3);
  EXPECT_THAT(reader_.last_error(), HasSubstr("not a JSON object"));
}

TEST_F(EventReaderTest, ALineWithoutEndIsCountedOnceAndNotKept) {
  const std::string much(10'000, 'x');
  int malformed = 0;
  for (int i = 0; i < 1000; ++i) malformed += Feed(much);
  EXPECT_EQ(malformed, 1);
  EXPECT_THAT(reader_.last_error(), HasSubstr("longer"));
  EXPECT_EQ(Feed("the rest of it\n{\"event\":\"ready\"}\n"), 0);
  EXPECT_EQ(events_.size(), 1u);
}

TEST_F(EventReaderTest, AnOverlongLineInOnePieceIsSkippedToo) {
  EXPECT_EQ(Feed(std::string(contract::kMaxEventBytes + 1, 'x') + "\n{\"event\":\"ready\"}\n"), 1);
  EXPECT_EQ(events_.size(), 1u);
}

TEST_F(EventReaderTest, TheLastLineMayLackItsNewline) {
  EXPECT_EQ(Feed(R"({"event":"ready"})"), 0);
  EXPECT_TRUE(events_.empty());
  EXPECT_EQ(Finish(), 0);
  EXPECT_EQ(events_.size(), 1u);
  EXPECT_EQ(Finish(), 0);
  EXPECT_EQ(Feed(R"({"event":"st)"), 0);  // killed while writing
  EXPECT_EQ(Finish(), 1);
}

}  // namespace
}  // namespace lockstep::telemetry
