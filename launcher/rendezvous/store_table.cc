#include "launcher/rendezvous/store_table.h"

#include <utility>

namespace lockstep::rendezvous {

Status StoreTable::Set(std::string_view key, std::string_view value) {
  const auto it = values_.find(key);
  const size_t before = it == values_.end() ? 0 : key.size() + it->second.size() + kEntryOverheadBytes;
  const size_t after = key.size() + value.size() + kEntryOverheadBytes;
  if (bytes_ - before + after > max_bytes_) {
    return ResourceExhausted("store: full: key " + std::string(key) + " would take it over " +
                             std::to_string(max_bytes_ >> 20) + " MiB");
  }
  bytes_ += after - before;
  if (it != values_.end()) {
    it->second = value;
    return {};  // who waited for the key has been served when it came
  }
  values_.emplace(key, value);

  const auto waiting = waiting_for_.find(key);
  if (waiting == waiting_for_.end()) return {};
  std::vector<OnComplete> complete;
  for (const WaiterId id : std::exchange(waiting->second, {})) {
    Waiter& waiter = waiters_.at(id);
    waiter.missing.erase(std::string(key));
    if (!waiter.missing.empty()) continue;
    complete.push_back(std::move(waiter.on_complete));
    bytes_ -= waiter.bytes;
    waiters_.erase(id);
  }
  waiting_for_.erase(waiting);
  for (const OnComplete& on_complete : complete) on_complete();
  return {};
}

const std::string* StoreTable::Find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

std::vector<std::string> StoreTable::Missing(const std::vector<std::string>& keys) const {
  std::vector<std::string> missing;
  for (const std::string& key : keys) {
    if (!values_.contains(key)) missing.push_back(key);
  }
  return missing;
}

Result<StoreTable::WaiterId> StoreTable::Await(const std::vector<std::string>& keys, OnComplete on_complete) {
  Waiter waiter{.missing = {}, .bytes = 0, .on_complete = std::move(on_complete)};
  for (const std::string& key : keys) {
    if (!values_.contains(key) && waiter.missing.insert(key).second)
      waiter.bytes += 2 * (key.size() + kEntryOverheadBytes);
  }
  if (bytes_ + waiter.bytes > max_bytes_)
    return ResourceExhausted("store: full: no room to wait for more keys");
  bytes_ += waiter.bytes;
  const WaiterId id = next_waiter_++;
  for (const std::string& key : waiter.missing) waiting_for_[key].insert(id);
  waiters_.emplace(id, std::move(waiter));
  return id;
}

std::vector<std::string> StoreTable::MissingOf(WaiterId waiter) const {
  const auto it = waiters_.find(waiter);
  if (it == waiters_.end()) return {};
  return {it->second.missing.begin(), it->second.missing.end()};
}

void StoreTable::Forget(WaiterId waiter) {
  const auto it = waiters_.find(waiter);
  if (it == waiters_.end()) return;
  for (const std::string& key : it->second.missing) {
    const auto waiting = waiting_for_.find(key);
    waiting->second.erase(waiter);
    if (waiting->second.empty()) waiting_for_.erase(waiting);
  }
  bytes_ -= it->second.bytes;
  waiters_.erase(it);
}

void StoreTable::Clear() {
  values_.clear();
  waiters_.clear();
  waiting_for_.clear();
  bytes_ = 0;
}

}  // namespace lockstep::rendezvous
