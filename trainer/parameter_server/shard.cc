#include "trainer/parameter_server/shard.h"

#include <algorithm>
#include <utility>

#include "trainer/collectives/sum.h"

namespace lockstep::trainer::parameter_server {

namespace {

size_t Bytes(int64_t floats) { return static_cast<size_t>(floats) * sizeof(float); }

}  // namespace

Shard::Shard(Options options, Optimizer& optimizer)
    : options_(std::move(options)),
      optimizer_(optimizer),
      parameters_(ZeroedHostBuffer(Bytes(options_.floats))) {
  for (int i = 0; i < optimizer.slots(); ++i) slots_[i] = ZeroedHostBuffer(Bytes(options_.floats));
}

Shard::Reading Shard::Read(const Pull& pull, Deadline deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [&] { return era_ != pull.era || version_ >= pull.least_version; });
  if (era_ != pull.era || version_ < pull.least_version || era_ == 0) return {};
  if (version_ == pull.have_version)
    return {.result = Pulled::kUnchanged, .copy = nullptr, .version = version_};
  if (newest_ == nullptr || newest_->version != version_) {
    newest_.reset();  // to be taken again at once, if nobody reads it any more
    newest_ = copies_.Take([&] {
      return std::make_unique<Copy>(Copy{.values = Buffer(HostAllocator(), Bytes(options_.floats))});
    });
    std::copy_n(parameters_.as<float>(), options_.floats, newest_->values.as<float>());
    newest_->version = version_;
  }
  return {.result = Pulled::kHere, .copy = newest_, .version = version_};
}

Buffer Shard::Room(int64_t era, Deadline deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline,
                      [&] { return era_ != era || staged_.size() + coming_ < options_.most_staged; });
  if (era_ != era || era_ == 0 || staged_.size() + coming_ >= options_.most_staged) return {};
  ++coming_;
  if (free_.empty()) return {HostAllocator(), std::max<size_t>(Bytes(options_.floats), kBufferAlignment)};
  Buffer buffer = std::move(free_.back());
  free_.pop_back();
  return buffer;
}

bool Shard::Stage(int64_t era, int64_t worker, int64_t lease, Buffer gradient, bool complete) {
  const std::lock_guard lock(mutex_);
  --coming_;
  const bool kept = complete && era == era_ && lease > resolved_[worker] && !staged_.contains(lease);
  if (kept) {
    staged_.emplace(lease, std::move(gradient));
  } else {
    Recycle(std::move(gradient));
  }
  changed_.notify_all();
  return kept;
}

void Shard::Recycle(Buffer buffer) {
  if (free_.size() < options_.most_staged) free_.push_back(std::move(buffer));
}

void Shard::Load(int64_t era, int64_t version, std::span<const float> parameters,
                 std::span<const std::span<const float>> slots) {
  const std::lock_guard lock(mutex_);
  std::copy(parameters.begin(), parameters.end(), parameters_.as<float>());
  for (size_t i = 0; i < slots.size(); ++i)
    std::copy(slots[i].begin(), slots[i].end(), slots_[i].as<float>());
  for (auto& [lease, gradient] : staged_) Recycle(std::move(gradient));
  staged_.clear();
  resolved_.clear();
  newest_.reset();  // the same version of another era may hold something else
  era_ = era;
  version_ = version;
  changed_.notify_all();
}

bool Shard::Apply(int64_t version, std::span<const int64_t> leases) {
  const std::lock_guard lock(mutex_);
  std::vector<const float*> gradients;
  for (const int64_t lease : leases) {
    const auto found = staged_.find(lease);
    if (found == staged_.end()) return false;
    gradients.push_back(found->second.as<float>());
  }
  float* const sum = staged_.at(leases.front()).as<float>();
  if (gradients.size() > 1) collectives::SumInOrder(gradients, sum, static_cast<size_t>(options_.floats));
  optimizer_.Update(version,
                    {.parameters = parameters_.as<float>(),
                     .gradients = sum,
                     .slots = {slots_[0].as<float>(), slots_[1].as<float>(), slots_[2].as<float>()}},
                    0, options_.floats, options_.ranges);
  version_ = version;
  for (const int64_t lease : leases) Recycle(std::move(staged_.extract(lease).mapped()));
  changed_.notify_all();
  return true;
}

void Shard::Drop(int64_t worker, int64_t lease) {
  const std::lock_guard lock(mutex_);
  resolved_[worker] = std::max(resolved_[worker], lease);
  if (auto node = staged_.extract(lease)) Recycle(std::move(node.mapped()));
  changed_.notify_all();
}

void Shard::Export(std::span<float> parameters, std::span<const std::span<float>> slots) const {
  const std::lock_guard lock(mutex_);
  std::copy_n(parameters_.as<float>(), parameters.size(), parameters.data());
  for (size_t i = 0; i < slots.size(); ++i)
    std::copy_n(slots_[i].as<float>(), slots[i].size(), slots[i].data());
}

void Shard::Void() {
  const std::lock_guard lock(mutex_);
  era_ = 0;
  changed_.notify_all();
}

int64_t Shard::version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

bool Shard::Holds(int64_t lease) const {
  const std::lock_guard lock(mutex_);
  return staged_.contains(lease);
}

size_t Shard::staged() const {
  const std::lock_guard lock(mutex_);
  return staged_.size();
}

}  // namespace lockstep::trainer::parameter_server
