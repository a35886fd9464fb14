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
  seed_ = seed;
  ranges_ = model.layout().update_ranges();
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
  MakeReplicaSum();
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
  if (world.group_size > 1) machines_ = ConnectMachines("machines/" + std::to_string(world.local_rank));
}

// The ranks with this local rank.
std::unique_ptr<collectives::Communicator> Replicated::ConnectMachines(const std::string& key) {
  const World& world = options_.world;
  return collectives::ConnectGloo({.rank = world.group_rank,
                                   .size = world.group_size,
                                   .store = options_.store,
                                   .key = key,
                                   .interface = options_.interface,
                                   .reach = options_.reach,
                                   .deadline = Clock::now() + options_.setup_timeout,
                                   .first_rank = world.local_rank,
                                   .rank_stride = world.local_size});
}

// With a communicator of its own: that of the gradients is busy while passes run.
void Replicated::MakeReplicaSum() {
  const World& world = options_.world;
  if (world.size == 1 || !(model_->sums_over_replicas() || model_->state_differs())) return;
  if (world.group_size > 1 && leads()) sums_between_machines_ = ConnectMachines("replica-sums");
  replica_sum_ = std::make_unique<SharedSum>(SharedSum::Options{.group = group_.get(),
                                                                .machines = sums_between_machines_.get(),
                                                                .several_machines = world.group_size > 1,
                                                                .deadline = [this] { return deadline(); }});
}

void Replicated::AllocateBuffers() {
  const size_t stride = Stride(total());
  const auto slots = static_cast<size_t>(optimizer_->slots());
  const bool apart = local_size() > 1;  // the master copy
  const size_t count = (apart ? 2 : 1) + slots + static_cast<size_t>(local_size());
  // What is divided is never touched outside this machine's part, and takes no memory there.
  buffers_ = group_->CreateSegment("buffers", stride * count, deadline(), options_.shard == Shard::kNone);
  size_t next = 0;
  const auto take = [&] { return buffers_.View<float>(stride * next++, total()).data(); };
  parameters_ = take();
  master_ = apart ? take() : parameters_;
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

// (No rank updates before all have come to its next step, and so have done with evaluating.)
void Replicated::UseAverage(bool average) {
  const int slot = AverageSlotOf(*optimizer_);
  model_->Bind({average ? slots_[slot] : parameters_, total()},
               {gradients_[static_cast<size_t>(local_rank())], total()});
  model_->ParametersChanged(0, model_->layout().total);
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
      std::vector<std::span<float>> slots;
      for (int i = 0; i < optimizer_->slots(); ++i) slots.emplace_back(slots_[i], total());
      fill({parameters_, total()}, slots);
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

void Replicated::StartStep(const Batch& batch) {
  group_->ThrowIfFailed(StepName() + "all-reduce");
  state_before_.resize(static_cast<size_t>(model_->state_size()));
  if (!state_before_.empty()) model_->ExportState(state_before_);
  penalty_ = model_->L2Penalty();
  global_samples_ = batch.global_samples;
  in_step_ = true;
  result_ = Step(batch);
}

std::vector<Committed> Replicated::TakeCommitted(Model& model) {
  Abort();
  // (Who comes to its updates after the group has failed finds that out before.)
  group_->Rest([&](int r) { return MayUpdate(r); }, Clock::now() + kRest);
  const bool completes = in_step_ && CanBeCompleted();
  std::vector<Committed> taken;
  const auto take = [&](std::optional<StepResult> finished) {
    Committed& committed = taken.emplace_back();
    committed.step = step_;
    committed.finished = finished;
    committed.state.slots.resize(static_cast<size_t>(optimizer_->slots()));
    BringState(model, &committed);
    committed.state.state.resize(static_cast<size_t>(model.state_size()));
    model.ExportState(committed.state.state);
  };
  if (in_step_ && !(completes && IsDecided())) {
    std::vector<float> after(state_before_.size());
    model.ExportState(after);
    model.ImportState(state_before_);
    take(std::nullopt);
    model.ImportState(after);
  }
  if (!completes) {
    if (!in_step_) take(std::nullopt);
    return taken;
  }
  CompleteStep();
  take(Finished(Reported()));
  return taken;
}

void Replicated::BringState(Model& model, Committed* to) {
  const auto canonical = [&](const float* flat, std::vector<float>* vector) {
    vector->resize(static_cast<size_t>(model.canonical_size()));
    model.ExportCanonical(flat, *vector);
  };
  canonical(parameters_, &to->state.parameters);
  for (size_t i = 0; i < to->state.slots.size(); ++i) canonical(slots_[i], &to->state.slots[i]);
}

// In memory of its own: other ranks may do the same. (What is in no piece is not this machine's.)
void Replicated::CompleteStep() {
  squared_norm_ = SquaredNormOfAll();
  const size_t stride = Stride(total());
  const int slots = optimizer_->slots();
  completed_ = ZeroedHostBuffer(stride * static_cast<size_t>(1 + slots));
  float* const own = completed_.as<float>();
  float* own_slots[kMostSlots] = {};
  for (int i = 0; i < slots; ++i) {
    own_slots[i] = own + stride / sizeof(float) * static_cast<size_t>(1 + i);
  }
  std::vector<float> sum;
  for (size_t piece = 0; piece < journal_.pieces().size(); ++piece) {
    const auto [begin, end] = journal_.pieces()[piece];
    const size_t count = end - begin;
    std::copy_n(parameters_ + begin, count, own + begin);
    for (int i = 0; i < slots; ++i) std::copy_n(slots_[i] + begin, count, own_slots[i] + begin);
    const Journal::Found found = journal_.Find(piece, turn_);
    if (found.state == Journal::State::kDone) continue;
    if (found.state == Journal::State::kWritten) {
      std::copy_n(master_ + begin, count, own + begin);
      continue;
    }
    for (int i = 0; i < slots && found.kept != nullptr; ++i) {
      std::copy_n(found.kept + static_cast<size_t>(i) * count, count, own_slots[i] + begin);
    }
    sum.resize(std::max(sum.size(), count));
    Apply(own, own_slots, GradientOf(piece, sum.data()) - begin, begin, end);
  }
  parameters_ = own;
  std::copy_n(own_slots, slots, slots_);
}

void Replicated::Broadcast(std::span<std::byte> data, int root) {
  const World& world = options_.world;
  if (world.size == 1 || data.empty()) return;
  const auto to_machines = [&](std::span<std::byte> all) {
    if (machines_ == nullptr || local_rank() != root % world.local_size) return;
    machines_->Broadcast(all, root / world.local_size, deadline());
  };
  BroadcastOnMachine(*group_, broadcasts_++, data, world.rank == root, to_machines, deadline());
}

void Replicated::Abort() noexcept {
  if (group_ != nullptr) group_->Abort();
  if (machines_ != nullptr) machines_->Abort();
  if (sums_between_machines_ != nullptr) sums_between_machines_->Abort();
}

size_t Replicated::Announced(uint64_t turn) const {
  uint64_t least = ~uint64_t{0};
  for (int r = 0; r < local_size(); ++r) least = std::min(least, members_[r].announced.load());
  const uint64_t start = Position(turn, 0);
  return least <= start ? 0 : std::min<uint64_t>(least - start, total());
}

void Replicated::SumGradients(std::span<float* const> from, size_t begin, size_t end) {
  if (from.size() == 1) return;
  SumInto(from, begin, end, gradients_[static_cast<size_t>(local_rank())] + begin);
}

void Replicated::SumInto(std::span<float* const> from, size_t begin, size_t end, float* to) {
  from_.clear();
  for (const float* gradients : from) from_.push_back(gradients + begin);
  collectives::SumInOrder(from_, to, end - begin);
}

double Replicated::SquaredNorm(size_t begin, size_t end) {
  return optimizer_->SquaredNorm(master_, gradients_[static_cast<size_t>(local_rank())],
                                 static_cast<int64_t>(begin), static_cast<int64_t>(end), ranges_);
}

void Replicated::AwaitUpdates(const std::string& operation) {
  const auto missing = [&](int r) { return members_[r].updated.load() <= turn_; };
  members_[local_rank()].updated.store(turn_ + 1);
  const auto look = [&] {
    for (int r = 0; r < local_size(); ++r) {
      if (missing(r)) return Look::kIdle;
    }
    return Look::kDone;
  };
  if (look() == Look::kDone) group_->Wake();
  group_->Wait(operation, look, missing, deadline());
}

void Replicated::Apply(float* parameters, float* const* slots, const float* gradients, size_t begin,
                       size_t end) {
  UpdateBuffers buffers{.parameters = parameters, .gradients = gradients, .slots = {}};
  std::copy_n(slots, kMostSlots, buffers.slots);
  if (optimizer_->clips_by_norm()) buffers.squared_norm = &squared_norm_;
  optimizer_->Update(step_ + 1, buffers, static_cast<int64_t>(begin), static_cast<int64_t>(end), ranges_);
}

void Replicated::Update(size_t begin, size_t end) {
  Apply(master_, slots_, gradients_[static_cast<size_t>(local_rank())], begin, end);
  if (master_ != parameters_) collectives::StreamCopy(parameters_ + begin, master_ + begin, end - begin);
}

void Replicated::UpdatePiece(size_t piece, const float* gradient) {
  const auto [begin, end] = journal_.pieces()[piece];
  journal_.Begin(piece, slots_);
  Apply(master_, slots_, gradient - begin, begin, end);
  journal_.Written();
  if (master_ != parameters_) collectives::StreamCopy(parameters_ + begin, master_ + begin, end - begin);
  journal_.Done(piece, turn_);
}

Replicated::Report Replicated::Reported() const {
  Report totals;
  for (int r = 0; r < local_size(); ++r) totals += members_[r].reports[turn_ % 2];
  return totals;
}

Replicated::Report Replicated::ReportOf(const LossResult& result, const Batch& batch) const {
  return {result.loss_sum, static_cast<double>(result.correct), static_cast<double>(batch.local_samples),
          stop_requested() ? 1.0 : 0.0};
}

StepResult Replicated::Finished(const Report& totals) {
  in_step_ = false;
  ++turn_;
  ++step_;
  return {.loss = totals.loss_sum / static_cast<double>(global_samples_) + penalty_,
          .correct = static_cast<int64_t>(totals.correct),
          .samples = static_cast<int64_t>(totals.samples),
          .stop = totals.stop > 0};
}

}  // namespace lockstep::trainer::strategy
