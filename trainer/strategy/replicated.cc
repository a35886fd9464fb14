#include "trainer/strategy/replicated.h"

#include <algorithm>

#include "trainer/collectives/gloo/gloo_communicator.h"
#include "trainer/collectives/local/stream_copy.h"
#include "trainer/collectives/sum.h"
#include "trainer/error.h"
#include "trainer/strategy/fingerprint.h"
#include "trainer/strategy/meeting.h"

namespace lockstep::trainer::strategy {
namespace {

using Clock = std::chrono::steady_clock;

// Between buffers of the same size: without it the same element of each lies in the same set of the cache.
constexpr size_t kStagger = 17 * 64;

size_t Stride(size_t floats) { return (floats * sizeof(float) + 63) / 64 * 64 + kStagger; }

}  // namespace

Replicated::Report& Replicated::Report::operator+=(const Report& other) {
  loss_sum += other.loss_sum;
  correct += other.correct;
  samples += other.samples;
  stop += other.stop;
  return *this;
}

void Replicated::Setup(Model& model, Optimizer& optimizer, uint64_t seed) {
  model_ = &model;
  optimizer_ = &optimizer;
  l2_ranges_ = model.layout().l2_ranges();
  MeetTheOthers();
  CompareModels(options_, model.layout(), optimizer.slots());
  ConnectMachines();
  AllocateBuffers();
  model.Bind({parameters_, total()}, {gradients_[static_cast<size_t>(local_rank())], total()});
  if (leads()) {
    model.Initialize(seed);
    if (master_ != parameters_) std::copy_n(parameters_, total(), master_);
  }
  group_->Barrier("initialising the parameters", deadline());
  if (!leads()) model.ParametersChanged(0, model.layout().total);
  std::string who;
  if (machines_ != nullptr && !MachinesAgree(Fingerprint(std::as_bytes(parameters())), &who)) {
    throw BadModel(who +
                   "the initial parameters, which follow from the model, the seed and the kind of processor");
  }
  Prepare();
  group_->Barrier("setting up", deadline());
}

void Replicated::MeetTheOthers() {
  group_ = JoinMachine(options_);
  const size_t control = sizeof(Shared) + sizeof(Member) * static_cast<size_t>(local_size());
  control_ = group_->CreateSegment("control", control, Clock::now() + options_.setup_timeout);
  shared_ = control_.View<Shared>(0, 1).data();
  members_ = control_.View<Member>(sizeof(Shared), static_cast<size_t>(local_size())).data();
}

void Replicated::ConnectMachines() {
  const World& world = options_.world;
  if (world.group_size == 1) return;
  machines_ = collectives::ConnectGloo({.rank = world.group_rank,
                                        .size = world.group_size,
                                        .store = options_.store,
                                        .key = "machines/" + std::to_string(world.local_rank),
                                        .interface = options_.interface,
                                        .reach = options_.reach,
                                        .deadline = Clock::now() + options_.setup_timeout,
                                        .first_rank = world.local_rank,
                                        .rank_stride = world.local_size});
}

void Replicated::AllocateBuffers() {
  const size_t stride = Stride(total());
  const auto slots = static_cast<size_t>(optimizer_->slots());
  const size_t count = 2 + slots + static_cast<size_t>(local_size());
  buffers_ = group_->CreateSegment("buffers", stride * count, deadline());
  size_t next = 0;
  const auto take = [&] { return buffers_.View<float>(stride * next++, total()).data(); };
  parameters_ = take();
  master_ = local_size() > 1 ? take() : parameters_;
  for (size_t i = 0; i < slots; ++i) slots_[i] = take();
  gradients_.clear();
  for (int r = 0; r < local_size(); ++r) gradients_.push_back(take());
}

// On several machines, whether all have the same; and if not, which do not.
bool Replicated::MachinesAgree(uint64_t fingerprint, std::string* disagreement) {
  if (machines_ == nullptr) return true;
  std::vector<uint64_t> all(static_cast<size_t>(machines_->size()));
  machines_->AllGather(std::as_bytes(std::span(&fingerprint, 1)), std::as_writable_bytes(std::span(all)),
                       deadline());
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == fingerprint) continue;
    *disagreement =
        "machines " + std::to_string(options_.world.group_rank) + " and " + std::to_string(i) + " differ in ";
    return false;
  }
  return true;
}

Totals Replicated::Sum(const Totals& local) {
  const uint64_t number = sums_++;
  const auto slot = static_cast<size_t>(number % 2);
  members_[local_rank()].sums[slot] = {local.loss_sum, static_cast<double>(local.correct),
                                       static_cast<double>(local.samples), 0};
  group_->Barrier("sum over the ranks", deadline());
  Report sum;
  for (int r = 0; r < local_size(); ++r) sum += members_[r].sums[slot];
  if (machines_ != nullptr) {
    if (leads()) {
      std::array<double, 3> values{sum.loss_sum, sum.correct, sum.samples};
      machines_->AllReduce(std::span<double>(values), deadline());
      shared_->sums[slot] = {values[0], values[1], values[2], 0};
    }
    group_->Barrier("sum over the machines", deadline());
    sum = shared_->sums[slot];
  }
  return {sum.loss_sum, static_cast<int64_t>(sum.correct), static_cast<int64_t>(sum.samples)};
}

void Replicated::Finish() {
  group_->Barrier("finishing", deadline());
  if (machines_ == nullptr) return;
  if (leads()) machines_->Barrier(deadline());
  group_->Barrier("finishing", deadline());
}

void Replicated::Restore(int64_t step, const Fill& fill) {
  group_->Barrier("restoring", deadline());
  if (leads()) {
    try {
      const std::array<std::span<float>, 2> slots{
          std::span<float>(slots_[0], slots_[0] == nullptr ? 0 : total()),
          std::span<float>(slots_[1], slots_[1] == nullptr ? 0 : total())};
      fill({parameters_, total()}, std::span(slots).first(static_cast<size_t>(optimizer_->slots())));
    } catch (...) {
      Abort();
      throw;
    }
    if (master_ != parameters_) std::copy_n(parameters_, total(), master_);
  }
  group_->Barrier("restoring", deadline());
  model_->ParametersChanged(0, model_->layout().total);
  step_ = step;
  if (machines_ == nullptr) return;
  uint64_t fingerprint = Fingerprint(std::as_bytes(std::span(&step, 1)));
  fingerprint = Fingerprint(std::as_bytes(parameters()), fingerprint);
  for (int i = 0; i < optimizer_->slots(); ++i)
    fingerprint = Fingerprint(std::as_bytes(slot(i)), fingerprint);
  if (std::string who; !MachinesAgree(fingerprint, &who)) throw BadData(who + "the checkpoint they restored");
}

void Replicated::Abort() noexcept {
  if (group_ != nullptr) group_->Abort();
  if (machines_ != nullptr) machines_->Abort();
}

size_t Replicated::Announced(uint64_t turn) const {
  uint64_t least = ~uint64_t{0};
  for (int r = 0; r < local_size(); ++r) least = std::min(least, members_[r].announced.load());
  const uint64_t start = Position(turn, 0);
  return least <= start ? 0 : std::min<uint64_t>(least - start, total());
}

void Replicated::SumGradients(std::span<float* const> from, size_t begin, size_t end) {
  if (from.size() == 1) return;
  from_.clear();
  for (const float* gradients : from) from_.push_back(gradients + begin);
  collectives::SumInOrder(from_, gradients_[static_cast<size_t>(local_rank())] + begin, end - begin);
}

void Replicated::Update(size_t begin, size_t end) {
  const UpdateBuffers buffers{.parameters = master_,
                              .gradients = gradients_[static_cast<size_t>(local_rank())],
                              .slots = {slots_[0], slots_[1]}};
  optimizer_->Update(step_ + 1, buffers, static_cast<int64_t>(begin), static_cast<int64_t>(end), l2_ranges_);
  if (master_ != parameters_) collectives::StreamCopy(parameters_ + begin, master_ + begin, end - begin);
}

Replicated::Report Replicated::ReportOf(const LossResult& result, const Batch& batch) const {
  return {result.loss_sum, static_cast<double>(result.correct), static_cast<double>(batch.local_samples),
          stop_requested() ? 1.0 : 0.0};
}

StepResult Replicated::Finished(const Report& totals, const Batch& batch, double penalty) {
  ++turn_;
  ++step_;
  return {.loss = totals.loss_sum / static_cast<double>(batch.global_samples) + penalty,
          .correct = static_cast<int64_t>(totals.correct),
          .samples = static_cast<int64_t>(totals.samples),
          .stop = totals.stop > 0};
}

}  // namespace lockstep::trainer::strategy
