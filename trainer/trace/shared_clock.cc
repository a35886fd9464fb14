#include "trainer/trace/shared_clock.h"

#include <charconv>
#include <limits>
#include <string>

namespace lockstep::trainer::trace {
namespace {

using std::chrono::nanoseconds;

// The first ones pay for connections that have slept.
constexpr int kQuestions = 8;

std::string Key(const char* what, int machine, int question) {
  return std::string("trace/") + what + "/" + std::to_string(machine) + "/" + std::to_string(question);
}

Result<nanoseconds> Read(const Result<std::string>& text) {
  if (!text.ok()) return text.status();
  int64_t count = 0;
  if (std::from_chars(text->data(), text->data() + text->size(), count).ec != std::errc()) {
    return Internal("trace: \"" + *text + "\" in the store is no time");
  }
  return nanoseconds(count);
}

}  // namespace

Result<nanoseconds> OffsetToFirstMachine(const ClockPlace& place, contract::Store* store,
                                         contract::Store::Deadline deadline,
                                         const std::function<nanoseconds()>& now) {
  if (place.machines == 1) return nanoseconds(0);
  if (place.machine == 0) {
    for (int machine = 1; place.local_rank == 0 && machine < place.machines; ++machine) {
      for (int i = 0; i < kQuestions; ++i) {
        LOCKSTEP_RETURN_IF_ERROR(store->Wait({Key("asks", machine, i)}, deadline));
        LOCKSTEP_RETURN_IF_ERROR(
            store->Set(Key("time", machine, i), std::to_string(now().count()), deadline));
      }
    }
    return nanoseconds(0);
  }
  const std::string found = Key("offset", place.machine, 0);
  if (place.local_rank > 0) return Read(store->Get(found, deadline));
  nanoseconds quickest = nanoseconds::max(), offset{0};
  for (int i = 0; i < kQuestions; ++i) {
    const nanoseconds asked = now();
    LOCKSTEP_RETURN_IF_ERROR(store->Set(Key("asks", place.machine, i), "", deadline));
    const Result<nanoseconds> time = Read(store->Get(Key("time", place.machine, i), deadline));
    LOCKSTEP_RETURN_IF_ERROR(time.status());
    const nanoseconds took = now() - asked;
    if (took >= quickest) continue;
    quickest = took;
    offset = *time - (asked + took / 2);
  }
  LOCKSTEP_RETURN_IF_ERROR(store->Set(found, std::to_string(offset.count()), deadline));
  return offset;
}

}  // namespace lockstep::trainer::trace
