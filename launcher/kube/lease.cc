#include "launcher/kube/lease.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/wall_time.h"
#include "launcher/kube/answer.h"

namespace lockstep::kube {

namespace {

int Number(const Json& object, const char* key, int otherwise) {
  const auto value = object.find(key);
  return value != object.end() && value->is_number_integer() ? value->get<int>() : otherwise;
}

std::string WallNow() { return FormatTime(std::chrono::system_clock::now(), TimeParts::kMicroseconds); }

}  // namespace

LeaseLock::LeaseLock(Client* client, LeaseOptions options) : client_(client), options_(std::move(options)) {}

Answer<LeaseView> LeaseLock::TryHold(Clock::time_point now) {
  auto found = client_->Get(kLeases, options_.name, options_.call);
  if (found.failed_with(Reason::kNotFound)) {
    Json lease;
    lease["spec"] = {{"holderIdentity", options_.identity},
                     {"leaseDurationSeconds", options_.duration.count()},
                     {"acquireTime", WallNow()},
                     {"renewTime", WallNow()},
                     {"leaseTransitions", 0}};
    lease["metadata"]["name"] = options_.name.name;
    return Keep(client_->Create(kLeases, options_.name.space, lease, options_.call), now);
  }
  if (!found.ok()) return found.error();

  Json& lease = *found;
  Json& spec = lease["spec"];
  const std::string holder = Text(spec, "holderIdentity");
  if (const std::string version = Text(lease["metadata"], "resourceVersion"); version != seen_version_) {
    seen_version_ = version;
    seen_at_ = now;
    seen_duration_ = std::chrono::seconds(
        std::max(1, Number(spec, "leaseDurationSeconds", static_cast<int>(options_.duration.count()))));
  }
  const bool ours = holder == options_.identity;
  if (!ours && !holder.empty() && now < seen_at_ + seen_duration_) {
    view_ = {.held = false, .holder = holder, .transitions = Number(spec, "leaseTransitions", 0)};
    return view_;
  }
  if (!ours) {
    spec["acquireTime"] = WallNow();
    spec["leaseTransitions"] = Number(spec, "leaseTransitions", 0) + 1;
  }
  spec["holderIdentity"] = options_.identity;
  spec["leaseDurationSeconds"] = options_.duration.count();
  spec["renewTime"] = WallNow();
  // With the resourceVersion that was read: whoever writes first has it.
  return Keep(client_->Update(kLeases, options_.name, lease, options_.call), now);
}

Answer<LeaseView> LeaseLock::Release() {
  if (!view_.held) return view_;
  auto found = client_->Get(kLeases, options_.name, options_.call);
  if (!found.ok()) return found.error();
  Json& spec = (*found)["spec"];
  if (Text(spec, "holderIdentity") == options_.identity) {
    spec["holderIdentity"] = "";
    spec["leaseDurationSeconds"] = 1;
    spec["renewTime"] = WallNow();
    auto written = client_->Update(kLeases, options_.name, *found, options_.call);
    if (!written.ok()) return written.error();
  }
  view_ = {.held = false, .transitions = view_.transitions};
  return view_;
}

Answer<LeaseView> LeaseLock::Keep(Answer<Json> written, Clock::time_point now) {
  if (!written.ok()) return written.error();
  const Json& spec = (*written)["spec"];
  seen_version_ = Text((*written)["metadata"], "resourceVersion");
  seen_at_ = now;
  seen_duration_ = options_.duration;
  view_ = {.held = true,
           .holder = options_.identity,
           .transitions = Number(spec, "leaseTransitions", 0),
           .held_until = now + options_.duration};
  return view_;
}

}  // namespace lockstep::kube
