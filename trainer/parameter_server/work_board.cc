#include "trainer/parameter_server/work_board.h"

#include <algorithm>
#include <utility>

namespace lockstep::trainer::parameter_server {

WorkBoard::WorkBoard(const Options& options, const State& state)
    : options_(options),
      batches_per_epoch_((options.samples + options.batch_size - 1) / options.batch_size),
      version_(state.version),
      next_(state.next),
      again_(state.missing.begin(), state.missing.end()),
      epochs_(state.epochs) {}

data::Range WorkBoard::SamplesOf(int64_t batch) const {
  const int64_t first = batch % batches_per_epoch_ * options_.batch_size;
  return {first, std::min(options_.batch_size, options_.samples - first)};
}

data::Range WorkBoard::PartOf(int64_t batch, int part) const {
  return data::ShardOf(SamplesOf(batch), part, options_.parts);
}

std::optional<int64_t> WorkBoard::NextBatch() {
  if (!again_.empty()) return again_.extract(again_.begin()).value();
  if (next_ < total_batches()) return next_++;
  return std::nullopt;
}

void WorkBoard::NoteLateOnes(TimePoint now) {
  for (auto& [id, lease] : leases_) {
    if (lease.late || now - lease.given < options_.lease_time) continue;
    lease.late = true;
    if (!options_.synchronous) again_.insert(lease.batch);
  }
}

std::optional<WorkBoard::Work> WorkBoard::Take(int worker, TimePoint now) {
  NoteLateOnes(now);
  if (!options_.synchronous) {
    const std::optional<int64_t> batch = NextBatch();
    return batch ? std::optional(Give(worker, *batch, 0, now)) : std::nullopt;
  }
  if (!at_hand_) {
    at_hand_ = NextBatch();
    parts_.assign(static_cast<size_t>(options_.parts), {});
  }
  if (!at_hand_) return std::nullopt;
  const int part = ChoosePart();
  return part < 0 ? std::nullopt : std::optional(Give(worker, *at_hand_, part, now));
}

WorkBoard::Work WorkBoard::Give(int worker, int64_t batch, int part, TimePoint now) {
  leases_.emplace(++last_lease_, Lease{.worker = worker, .batch = batch, .part = part, .given = now});
  const data::Range samples = PartOf(batch, part);
  return {.lease = last_lease_,
          .epoch = EpochOf(batch),
          .samples = samples,
          .batch_samples = SamplesOf(batch).count,
          .version = version_};
}

int WorkBoard::Copies(int part) const {
  return static_cast<int>(std::count_if(leases_.begin(), leases_.end(), [&](const auto& entry) {
    return entry.second.batch == at_hand_ && entry.second.part == part && !entry.second.late;
  }));
}

int WorkBoard::ChoosePart() const {
  int chosen = -1;
  int fewest = 1 + std::max(0, options_.workers - options_.parts);  // as many copies of a part are enough
  for (int part = 0; part < options_.parts; ++part) {
    if (parts_[static_cast<size_t>(part)].lease || PartOf(*at_hand_, part).count == 0) continue;
    const int copies = Copies(part);
    if (copies >= fewest) continue;
    chosen = part;
    fewest = copies;
  }
  return chosen;
}

WorkBoard::Outcome WorkBoard::Commit(int worker, int64_t id, const Report& report) {
  const auto found = leases_.find(id);
  if (found == leases_.end() || found->second.worker != worker) return {};
  const Lease lease = found->second;
  leases_.erase(found);
  if (options_.synchronous) {
    if (lease.batch != at_hand_ || parts_[static_cast<size_t>(lease.part)].lease) return {};
    return {.counts = true, .update = CommitPart(id, lease, report)};
  }
  const int64_t age = version_ - std::clamp<int64_t>(report.version, 0, version_);
  if (options_.max_gradient_age && age > *options_.max_gradient_age) {
    again_.insert(lease.batch);
    return {};
  }
  again_.erase(lease.batch);  // if it was late
  std::erase_if(leases_, [&](const auto& other) { return other.second.batch == lease.batch; });
  const strategy::Totals totals{report.loss_sum, report.correct, SamplesOf(lease.batch).count};
  Update update = Advance(lease.batch, {id}, totals, report.penalty);
  update.age = age;
  return {.counts = true, .update = std::move(update)};
}

std::optional<WorkBoard::Update> WorkBoard::CommitPart(int64_t id, const Lease& lease, const Report& report) {
  parts_[static_cast<size_t>(lease.part)] = {.lease = id, .report = report};
  strategy::Totals totals;
  std::vector<int64_t> ids;
  for (int p = 0; p < options_.parts; ++p) {
    const Part& part = parts_[static_cast<size_t>(p)];
    const int64_t samples = PartOf(lease.batch, p).count;
    if (samples == 0) continue;
    if (!part.lease) return std::nullopt;
    ids.push_back(*part.lease);
    totals.loss_sum += part.report.loss_sum;
    totals.correct += part.report.correct;
    totals.samples += samples;
  }
  at_hand_.reset();
  return Advance(lease.batch, std::move(ids), totals, parts_.front().report.penalty);
}

WorkBoard::Update WorkBoard::Advance(int64_t batch, std::vector<int64_t> ids, const strategy::Totals& totals,
                                     double penalty) {
  Update update{.version = ++version_,
                .leases = std::move(ids),
                .epoch = EpochOf(batch),
                .batch = SamplesOf(batch),
                .loss = totals.loss_sum / static_cast<double>(totals.samples) + penalty};
  strategy::Totals& epoch = epochs_[update.epoch];
  epoch.loss_sum += update.loss * static_cast<double>(totals.samples);
  epoch.correct += totals.correct;
  epoch.samples += totals.samples;
  if (epoch.samples == options_.samples) {
    update.ends_epoch = true;
    update.epoch_totals = epoch;
    epochs_.erase(update.epoch);
  }
  return update;
}

std::vector<int64_t> WorkBoard::Forget(int worker) {
  std::vector<int64_t> forgotten;
  for (auto it = leases_.begin(); it != leases_.end();) {
    if (it->second.worker != worker) {
      ++it;
      continue;
    }
    if (!options_.synchronous) again_.insert(it->second.batch);
    forgotten.push_back(it->first);
    it = leases_.erase(it);
  }
  return forgotten;
}

bool WorkBoard::has_lease(int worker) const {
  return std::any_of(leases_.begin(), leases_.end(),
                     [&](const auto& entry) { return entry.second.worker == worker; });
}

WorkBoard::State WorkBoard::state() const {
  std::set<int64_t> missing = again_;
  if (at_hand_) missing.insert(*at_hand_);
  if (!options_.synchronous) {
    for (const auto& [id, lease] : leases_) missing.insert(lease.batch);
  }
  return {.version = version_, .next = next_, .missing = {missing.begin(), missing.end()}, .epochs = epochs_};
}

int64_t WorkBoard::first_not_done() const {
  const State now = state();
  return now.missing.empty() ? now.next : now.missing.front();
}

}  // namespace lockstep::trainer::parameter_server
