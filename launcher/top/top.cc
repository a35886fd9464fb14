#include "launcher/top/top.h"

#include <condition_variable>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "launcher/top/screen.h"
#include "launcher/top/terminal.h"

namespace lockstep::top {

namespace {

constexpr auto kLookForAnswers = std::chrono::milliseconds(100);
constexpr int kAll = std::numeric_limits<int>::max() / 2;

// Asks on a thread, so that keys work while an answer is late.
class Asker {
 public:
  explicit Asker(const Source& source)
      : thread_([this, &source](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            Result<plugin::JobView> answer = source.ask();
            std::unique_lock lock(mutex_);
            answer_ = std::move(answer);
            stopped_.wait_for(lock, stop, source.interval, [] { return false; });
          }
        }) {}

  // The newest answer that was not taken yet.
  std::optional<Result<plugin::JobView>> Take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(answer_, std::nullopt);
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::optional<Result<plugin::JobView>> answer_;
  std::jthread thread_;  // last: it uses the others
};

plugin::RankOrder Next(plugin::RankOrder order) {
  switch (order) {
    case plugin::RankOrder::kRank:
      return plugin::RankOrder::kSlowest;
    case plugin::RankOrder::kSlowest:
      return plugin::RankOrder::kMemory;
    case plugin::RankOrder::kMemory:
      return plugin::RankOrder::kRank;
  }
  return order;
}

}  // namespace

Status Show(const Source& source) {
  Result<std::unique_ptr<Terminal>> opened = Terminal::Open();
  if (!opened.ok()) return opened.status();
  Terminal& terminal = **opened;
  Screen screen(source.name);
  Asker asker(source);
  std::optional<plugin::JobView> view;
  auto order = plugin::RankOrder::kRank;
  const auto describe = [&] {
    if (!view) return;
    const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
    screen.Show(plugin::DescribeStatus(*view, now, kAll, order));
  };
  for (;;) {
    if (auto answer = asker.Take()) {
      if (answer->ok()) {
        view = **std::move(answer);
        describe();
      } else {
        screen.Fail(answer->status().message());
      }
    }
    terminal.Draw(screen.Draw(terminal.rows(), terminal.columns()));
    switch (terminal.WaitForKey(kLookForAnswers)) {
      case Key::kNone:
        break;
      case Key::kQuit:
        return {};
      case Key::kOrder:
        order = Next(order);
        screen.SetOrder(order);
        describe();
        break;
      case Key::kUp:
        screen.Scroll(-1);
        break;
      case Key::kDown:
        screen.Scroll(1);
        break;
      case Key::kPageUp:
        screen.Scroll(-terminal.rows() / 2);
        break;
      case Key::kPageDown:
        screen.Scroll(terminal.rows() / 2);
        break;
      case Key::kFirst:
        screen.Scroll(-kAll);
        break;
      case Key::kLast:
        screen.Scroll(kAll);
        break;
    }
  }
}

}  // namespace lockstep::top
