#include "launcher/kube/follow.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <utility>

namespace lockstep::kube {

namespace {

using std::chrono::milliseconds;

class Follower {
 public:
  Follower(Client& client, const Resource& resource, const FollowOptions& options, FollowSink& sink)
      : client_(client),
        resource_(resource),
        options_(options),
        sink_(sink),
        random_(std::random_device{}()) {}

  void Run() {
    while (!client_.stopped()) {
      const std::optional<Error> error = version_.empty() ? List() : Watch();
      if (!error) {
        pause_ = milliseconds(0);
      } else if (error->reason == Reason::kExpired && !version_.empty()) {
        version_.clear();
      } else if (!client_.stopped()) {
        Wait(*error);
      }
    }
  }

 private:
  std::optional<Error> List() {
    sink_.BeginList();
    auto version = client_.List(resource_,
                                {.space = options_.space,
                                 .label_selector = options_.label_selector,
                                 .field_selector = options_.field_selector,
                                 .page = options_.page},
                                [this](Json& object) { sink_.Seen(object); });
    if (!version.ok()) return version.error();
    version_ = *std::move(version);
    listed_at_ = Clock::now();
    sink_.EndList();
    return std::nullopt;
  }

  std::optional<Error> Watch() {
    const bool relists = options_.relist.count() > 0;
    if (relists && Clock::now() - listed_at_ >= options_.relist) {
      version_.clear();
      return std::nullopt;
    }
    std::chrono::seconds duration = Shortened(options_.watch_duration);
    if (relists) {
      const auto left =
          std::chrono::ceil<std::chrono::seconds>(options_.relist - (Clock::now() - listed_at_));
      duration = std::min(duration, std::max(left, std::chrono::seconds(1)));
    }
    bool any = false;
    const Clock::time_point began = Clock::now();
    const auto answer = client_.Watch(resource_,
                                      {.space = options_.space,
                                       .label_selector = options_.label_selector,
                                       .field_selector = options_.field_selector,
                                       .resource_version = version_,
                                       .duration = duration},
                                      [&](EventType type, Json& object) {
                                        any = true;
                                        // Before the sink has moved from it.
                                        std::string version =
                                            object["metadata"]["resourceVersion"].get<std::string>();
                                        if (type == EventType::kDeleted) {
                                          sink_.Gone(object);
                                        } else if (type != EventType::kBookmark) {
                                          sink_.Seen(object);
                                        }
                                        version_ = std::move(version);
                                        return true;
                                      });
    // A watch that brought something is no failure to back off from, however it ended.
    if (any) pause_ = milliseconds(0);
    // A server that ends watches at once is not asked in a loop.
    if (answer.ok() && !any && Clock::now() - began < std::chrono::seconds(1))
      client_.Sleep(options_.first_pause);
    return answer.ok() ? std::nullopt : std::optional(answer.error());
  }

  void Wait(const Error& error) {
    pause_ = pause_.count() == 0 ? options_.first_pause : std::min(pause_ * 2, options_.longest_pause);
    milliseconds pause = pause_ - Random(pause_ / 2);
    if (error.retry_after) pause = std::max<milliseconds>(pause, *error.retry_after);
    sink_.Failed(error, pause);
    client_.Sleep(pause);
  }

  milliseconds Random(milliseconds most) {
    return milliseconds(
        std::uniform_int_distribution<int64_t>(0, std::max<int64_t>(most.count(), 0))(random_));
  }
  std::chrono::seconds Shortened(std::chrono::seconds duration) {
    return std::max(std::chrono::seconds(1),
                    duration - std::chrono::floor<std::chrono::seconds>(Random(milliseconds(duration) / 3)));
  }

  Client& client_;
  const Resource& resource_;
  const FollowOptions& options_;
  FollowSink& sink_;
  std::minstd_rand random_;
  std::string version_;  // empty: list
  Clock::time_point listed_at_;
  milliseconds pause_{0};
};

}  // namespace

void Follow(Client& client, const Resource& resource, const FollowOptions& options, FollowSink& sink) {
  Follower(client, resource, options, sink).Run();
}

}  // namespace lockstep::kube
