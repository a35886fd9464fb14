#include "launcher/pmix/horovod_store.h"

#include <chrono>
#include <string>

namespace lockstep::pmix {

namespace {

// Horovod asks again every 10 ms; a question that waits saves most of that.
constexpr auto kWait = std::chrono::seconds(1);
constexpr auto kPutLimit = std::chrono::seconds(30);

contract::Store::Deadline In(std::chrono::seconds time) {
  return contract::Store::Deadline::clock::now() + time;
}

}  // namespace

Result<std::unique_ptr<http::KeyValueServer>> ServeHorovod(StoreLink& link, int ranks) {
  return http::KeyValueServer::Start(
      {.get = [&link](const std::string& key) -> Result<std::string> {
         const auto store = link.Get();
         LOCKSTEP_RETURN_IF_ERROR(store.status());
         auto value = (*store)->Get("horovod/" + key, In(kWait));
         if (value.status().code() == StatusCode::kDeadlineExceeded) {
           return NotFound("not there yet");
         }
         return value;
       },
       .put = [&link](const std::string& key, const std::string& value) -> Status {
         const auto store = link.Get();
         LOCKSTEP_RETURN_IF_ERROR(store.status());
         return (*store)->Set("horovod/" + key, value, In(kPutLimit));
       },
       .clients = ranks});
}

}  // namespace lockstep::pmix
