#include "trainer/collectives/gloo/store_adapter.h"

#include "trainer/error.h"

namespace lockstep::trainer::collectives {
namespace {

void ThrowIfError(const Status& status) {
  if (!status.ok()) throw RendezvousFailed(status.message());
}

}  // namespace

void StoreAdapter::set(const std::string& key, const std::vector<char>& data) {
  ThrowIfError(store_.Set(prefix_ + "/" + key, {data.data(), data.size()}, deadline_));
}

std::vector<char> StoreAdapter::get(const std::string& key) {
  const Result<std::string> value = store_.Get(prefix_ + "/" + key, deadline_);
  ThrowIfError(value.status());
  return {value->begin(), value->end()};
}

void StoreAdapter::wait(const std::vector<std::string>&) {
  std::vector<std::string> all;
  for (int rank = 0; rank < size_; ++rank) all.push_back(prefix_ + "/" + std::to_string(rank));
  ThrowIfError(store_.Wait(all, deadline_));
}

// One deadline rules over the whole of connecting; Gloo's timeout is the same one, counted from later.
void StoreAdapter::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) {
  wait(keys);
}

}  // namespace lockstep::trainer::collectives
