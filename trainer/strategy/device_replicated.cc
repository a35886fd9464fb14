#include "trainer/strategy/device_replicated.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "common/log.h"
#include "trainer/error.h"
#include "trainer/strategy/device_ops.h"
#include "trainer/strategy/meeting.h"

namespace lockstep::trainer::strategy {
namespace {

using collectives::DeviceReport;

// The report's first half is copied from the loss kernel's sums as they are.
static_assert(offsetof(DeviceReport, loss_sum) == offsetof(LossSums, loss_sum) &&
              offsetof(DeviceReport, correct) == offsetof(LossSums, correct));
constexpr size_t kLossHalf = offsetof(DeviceReport, samples);

}  // namespace

DeviceReplicated::DeviceReplicated(const Options& options) : options_(options), device_(*options.device) {}

DeviceReplicated::~DeviceReplicated() {
  // The others must not wait for a rank that leaves early, nor this one's stream for them.
  if (!ended_) Abort();
}

// Names the step in what goes wrong between the ranks. The device is not to be stuck behind the others'.
template <typename Work>
void DeviceReplicated::InStep(int64_t step, Work&& work) {
  try {
    work();
  } catch (const CollectiveLost& lost) {
    if (communicator_ != nullptr) communicator_->Abort();
    throw CollectiveLost("step " + std::to_string(step) + ": " + lost.what());
  }
}

void DeviceReplicated::Setup(Model& model, Optimizer& optimizer, uint64_t seed) {
  model_ = &model;
  optimizer_ = &optimizer;
  seed_ = seed;
  const bool sums = !alone() && (model.sums_over_replicas() || model.state_differs());
  if (sums && options_.world.group_size > 1) {
    throw Unsupported(
        "BatchNormalization with replicas on GPUs of several machines is not there; use one machine, or "
        "processors");
  }
  for (const Variable& variable : model.layout().variables) {
    if (variable.l2 != 0) penalised_.push_back(variable);
  }
  CompareModels(options_, model.layout(), optimizer.slots());
  Connect();
  if (sums) {
    replica_sum_ = std::make_unique<SharedSum>(
        SharedSum::Options{.group = group_.get(), .deadline = [this] { return deadline(); }});
  }
  Divide();
  Allocate();
  PlaceBuckets();
  if (!alone()) MakeEvents();
  Bind(state_.as<float>());
  if (options_.world.rank == 0) model.Initialize(seed);
  BroadcastState();
  group_->Barrier("setting up", deadline());
}

void DeviceReplicated::Connect() {
  const World& world = options_.world;
  DeviceOpsChoice choice;
  if (!alone()) choice = ChooseDeviceOps(options_.ops, world, TellDevices(options_));
  group_ = JoinMachine(options_);
  watch_ = std::make_unique<DeviceWatch>(DeviceWatch::Options{.device = device_,
                                                              .group = *group_,
                                                              .alone = alone(),
                                                              .timeout = options_.collective_timeout,
                                                              .check =
                                                                  [this] {
                                                                    if (communicator_ != nullptr)
                                                                      communicator_->Check();
                                                                  }},
                                         Clock::now() + options_.setup_timeout);
  if (alone()) return;
  communicator_ = options_.communicators->connect({.ops = choice.ops,
                                                   .rank = world.rank,
                                                   .size = world.size,
                                                   .local_rank = world.local_rank,
                                                   .local_size = world.local_size,
                                                   .shared_devices = choice.shared_devices,
                                                   .store = options_.store,
                                                   .key = "devices",
                                                   .interface = options_.interface,
                                                   .deadline = Clock::now() + options_.setup_timeout,
                                                   .timeout = options_.collective_timeout,
                                                   .segments = options_.segments},
                                                  device_);
  why_these_ops_ = choice.why;
}

void DeviceReplicated::Allocate() {
  Allocator& allocator = alone() ? device_.allocator() : device_.shareable();
  const auto slots = static_cast<size_t>(optimizer_->slots());
  state_ = Buffer(allocator, (stride_ + slots * slot_stride_) * sizeof(float));
  const size_t floats = gradient_floats_ + (in_turns_ ? slot_stride_ : 0);
  exchange_ = Buffer(allocator, floats * sizeof(float) + 2 * sizeof(DeviceReport));
  gradients_ = exchange_.as<float>();
  report_ = reinterpret_cast<DeviceReport*>(gradients_ + floats);
  norm_ = report_ + 1;
  const size_t squares = penalised_.size() * sizeof(double);
  rates_ = std::make_unique<DeviceRates>(device_);
  small_ = Buffer(device_.allocator(), kBufferAlignment + squares);
  squared_norm_ = sharded() ? &norm_->loss_sum : small_.as<double>();
  squares_ = reinterpret_cast<double*>(small_.as<char>() + kBufferAlignment);
  for (const Buffer* buffer : {&state_, &exchange_}) device_.Zero(buffer->data(), buffer->bytes());
  device_.Synchronize();

  const size_t landing = RoundUp(sizeof(Landing) + squares, kBufferAlignment);
  pinned_ = Buffer(device_.pinned(), (kInFlight + 1) * landing);
  std::memset(pinned_.data(), 0, pinned_.bytes());
  char* place = pinned_.as<char>();
  for (Flight& flight : flights_) {
    flight.landing = reinterpret_cast<Landing*>(place);
    flight.squares = reinterpret_cast<double*>(place + sizeof(Landing));
    flight.done = device_.MakeEvent(false);
    place += landing;
  }
  sum_landing_ = reinterpret_cast<Landing*>(place);
  idle_ = device_.MakeEvent(false);
  host_.resize(1 + slots);
  host_step_.assign(1 + slots, -1);
  // (Sums in the middle of a pass are the host's.)
  if (options_.trace != nullptr) trace_ = std::make_unique<DeviceTrace>(device_, *options_.trace, kInFlight);
  recordable_ = options_.record_steps && trace_ == nullptr &&
                (alone() || (communicator_->recordable() && !model_->sums_over_replicas()));
}

void DeviceReplicated::MakeEvents() {
  const auto make_wait = [&] { return Wait{device_.MakeEvent(true), device_.MakeEvent(true)}; };
  for (Bucket& bucket : buckets_) {
    for (auto* event : {&bucket.ready, &bucket.reduced, &bucket.updated}) *event = device_.MakeEvent(false);
    bucket.wait = make_wait();
  }
  for (auto* event : {&reported_, &report_reduced_, &gathered_}) *event = device_.MakeEvent(false);
  report_wait_ = make_wait();
  gather_wait_ = make_wait();
  for (const Buffer* buffer : {&state_, &exchange_}) {
    communicator_->Register(buffer->data(), buffer->bytes(), Clock::now() + options_.setup_timeout);
  }
  if (options_.world.rank == 0) {
    log::Info("gradients: " + communicator_->description() + ", since " + why_these_ops_);
    ReportShares();
  }
}

void DeviceReplicated::Bind(float* parameters) {
  std::vector<GradientRange> places;
  for (const Bucket& bucket : buckets_) {
    places.push_back(
        {static_cast<int64_t>(bucket.range.begin), static_cast<int64_t>(bucket.range.end), bucket.gradients});
  }
  in_turns_ ? model_->Bind({parameters, total()}, places)
            : model_->Bind({parameters, total()}, {gradients_, total()});
}

// Rank 0's parameters and slots on every rank. (Divided, slots go their own way.)
void DeviceReplicated::BroadcastState() {
  if (!alone()) {
    const size_t bytes = sharded() ? stride_ * sizeof(float) : state_.bytes();
    communicator_->Broadcast(state_.data(), bytes, 0, device_.compute_stream());
    idle_->Record(device_.compute_stream());
    watch_->Await(*idle_, "broadcast of the parameters", 0);
  }
  model_->ParametersChanged(0, model_->layout().total);
}

void DeviceReplicated::StartStep(const Batch& batch) {
  const int64_t number = steps_started() + 1;
  Flight& flight = flights_[started_ % kInFlight];
  flight.global_samples = batch.global_samples;
  flight.measured = !alone() && started_ % kMeasureEvery == 0;
  flight.landing->mine = {.samples = batch.local_samples, .stop = stop_requested() ? 1 : 0};
  ++started_;
  watch_->Started(number);
  if (trace_ != nullptr) trace_->BeginStep(number);
  InStep(number, [&] {
    // Passes that sum over the replicas wait for the device without an eye on the others: what it is to do
    // before must not depend on them.
    if (!alone() && model_->sums_over_replicas()) {
      idle_->Record(device_.compute_stream());
      watch_->Await(*idle_, "all-reduce", number - 1);
    }
    rates_->Tell(optimizer_->Rates(number));
    if (!alone()) {
      device_.CopyAsync(&report_->samples, &flight.landing->mine.samples, sizeof(DeviceReport) - kLossHalf);
    }
    watch_->WithOthers([&] { Run(batch, flight.measured); });
    device_.CopyAsync(&flight.landing->sums, model_->loss_sums(), sizeof(LossSums));
    if (!alone()) device_.CopyAsync(&flight.landing->total, report_, sizeof(DeviceReport));
    if (!penalised_.empty()) {
      device_.CopyAsync(flight.squares, squares_, penalised_.size() * sizeof(double));
    }
    if (trace_ != nullptr) trace_->EndStep();
    flight.done->Record(device_.compute_stream());
  });
}

// Every rank comes to the same decision: a rank's share follows from the batch (see Batch).
void DeviceReplicated::Run(const Batch& batch, bool measured) {
  int& runs = ordinary_[{batch.local_samples, batch.global_samples}];
  if (recordable_ && runs > 0 && !measured) {
    const Recorded key{batch.inputs, batch.labels, batch.local_samples, batch.global_samples};
    auto found = graphs_.find(key);
    if (found == graphs_.end()) {
      auto graph = device_.Record([&] { Enqueue(batch, false); });
      if (graph == nullptr) {
        recordable_ = false;
        return Enqueue(batch, false);
      }
      found = graphs_.emplace(key, std::move(graph)).first;
    }
    return found->second->Launch();
  }
  ++runs;
  Enqueue(batch, measured);
}

void DeviceReplicated::Enqueue(const Batch& batch, bool measured) {
  const Stream compute = device_.compute_stream();
  for (size_t i = 0; i < penalised_.size(); ++i) {
    device_.SumOfSquaresAsync(state_.as<float>() + penalised_[i].offset, penalised_[i].size, squares_ + i);
  }
  if (in_turns_) StartTurns();
  size_t ready = 0;
  EnqueuePasses(batch, [&](int64_t, int64_t end) {
    for (; ready < buckets_.size() && buckets_[ready].range.end <= static_cast<size_t>(end); ++ready) {
      buckets_[ready].ready->Record(compute);
      if (in_turns_) TakeTurn(ready, measured);
    }
  });
  const bool clips = optimizer_->clips_by_norm();
  if (!alone()) SumOverRanks(measured);
  if (clips) UpdateClipped();
  if (alone() && !clips) Update(whole_);
  if (!sharded()) return model_->ParametersUpdated(0, model_->layout().total);
  GatherParameters(measured);
  model_->ParametersChanged(0, model_->layout().total);
}

void DeviceReplicated::EnqueuePasses(const Batch& batch, const Model::GradientsReady& ready) {
  ModelBatch share = ForModel(batch, seed_, replica_sum_.get());
  std::optional<DeviceTrace::Scope> pass;
  const auto enter = [&](const char* name) {
    pass.emplace(trace_.get(), trace::Track::kCompute, device_.compute_stream(), name);
  };
  if (trace_ != nullptr) {
    share.on_point = [&](PassPoint point) {
      pass.reset();
      if (point == PassPoint::kBegin) enter("forward");
      if (point == PassPoint::kForwardDone) enter("backward");
    };
  }
  model_->EnqueueTrainStep(share, ready);
}

void DeviceReplicated::EnqueueSum(const Bucket& bucket) {
  const Stream communication = device_.communication_stream();
  bucket.ready->MakeWait(communication);
  {
    const DeviceTrace::Scope scope(
        trace_.get(), trace::Track::kCommunication, communication,
        sharded() ? "reduce-scatter" : "all-reduce",
        {.bucket = NumberOf(bucket), .bytes = static_cast<int64_t>(bucket.range.size() * sizeof(float))});
    if (sharded()) {
      communicator_->ReduceScatter(bucket.gradients, bucket.range.size(), bucket.sums, communication);
    } else {
      communicator_->AllReduce(bucket.gradients, bucket.range.size(), communication);
    }
  }
  bucket.reduced->Record(communication);
}

void DeviceReplicated::WaitFor(DeviceEvent& event, const Wait& wait, bool measured) {
  const Stream compute = device_.compute_stream();
  const DeviceTrace::Scope scope(trace_.get(), trace::Track::kCompute, compute, "wait");
  if (measured) wait.before->Record(compute);
  event.MakeWait(compute);
  if (measured) wait.after->Record(compute);
}

// The sums are enqueued behind the whole pass (but for those in turns), so that no wait for another process
// holds it up; on the device each begins when its bucket is ready.
void DeviceReplicated::SumOverRanks(bool measured) {
  const Stream compute = device_.compute_stream(), communication = device_.communication_stream();
  device_.CopyAsync(report_, model_->loss_sums(), kLossHalf);
  reported_->Record(compute);
  for (size_t i = 0; i < buckets_.size() && !in_turns_; ++i) EnqueueSum(buckets_[i]);
  reported_->MakeWait(communication);
  communicator_->AllReduce(report_, communication);
  report_reduced_->Record(communication);

  for (size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& bucket = buckets_[i];
    const bool waited = in_turns_ && i + 2 < buckets_.size();  // see TakeTurn
    if (!waited) WaitFor(*bucket.reduced, bucket.wait, measured);
    if (!optimizer_->clips_by_norm()) Update(bucket);
  }
  WaitFor(*report_reduced_, report_wait_, measured);
}

// Every rank has the same sums, and so the same norm, bit for bit.
void DeviceReplicated::UpdateClipped() {
  if (sharded()) return UpdateClippedShares();
  optimizer_->AddPenalties(state_.as<float>(), gradients_, 0, model_->layout().total, whole_.ranges);
  device_.SumOfSquaresAsync(gradients_, model_->layout().total, squared_norm_);
  Update(whole_);
}

// (What the step's number decides is in rates_; and what others update of the parameters is written there
// only.)
void DeviceReplicated::Update(const Bucket& bucket) {
  const DeviceTrace::Scope scope(trace_.get(), trace::Track::kCompute, device_.compute_stream(), "update",
                                 {.bucket = NumberOf(bucket)});
  UpdateBuffers buffers{.parameters = state_.as<float>() + bucket.share.begin,
                        .gradients = bucket.sums,
                        .rates = rates_->data()};
  if (optimizer_->clips_by_norm()) buffers.squared_norm = squared_norm_;
  for (int i = 0; i < optimizer_->slots(); ++i) buffers.slots[i] = SlotOf(i) + bucket.slots;
  if (!sharded()) buffers.rounded = bucket.rounded;
  optimizer_->Update(1, buffers, 0, static_cast<int64_t>(bucket.share.size()), bucket.ranges);
  if (sharded()) bucket.updated->Record(device_.compute_stream());
}

// How long the compute stream stood still for the others.
double DeviceReplicated::TakeExposed() {
  const auto of = [](const Wait& wait) { return wait.after->SecondsSince(*wait.before); };
  double seconds = of(report_wait_) + (sharded() ? of(gather_wait_) : 0);
  for (const Bucket& bucket : buckets_) seconds += of(bucket.wait);
  return seconds;
}

StepResult DeviceReplicated::FinishStep() {
  Flight& flight = flights_[finished_ % kInFlight];
  InStep(step_ + 1, [&] { watch_->Await(*flight.done, "all-reduce", step_ + 1); });
  const Landing& landing = *flight.landing;
  const LossResult mine = ResultOf(landing.sums, model_->outputs());
  const DeviceReport total = alone() ? DeviceReport{.loss_sum = mine.loss_sum,
                                                    .correct = mine.correct,
                                                    .samples = landing.mine.samples,
                                                    .stop = landing.mine.stop}
                                     : landing.total;
  double penalty = 0;
  for (size_t i = 0; i < penalised_.size(); ++i) penalty += penalised_[i].l2 * flight.squares[i];
  if (flight.measured) exposed_ = TakeExposed();
  if (trace_ != nullptr) trace_->FinishStep();
  ++finished_;
  ++step_;
  return {.loss = total.loss_sum / static_cast<double>(flight.global_samples) + penalty,
          .correct = total.correct,
          .samples = total.samples,
          .stop = total.stop > 0,
          .collective_seconds = exposed_,
          .collective_bytes = alone() ? 0 : static_cast<int64_t>(this->total() * sizeof(float))};
}

Totals DeviceReplicated::Sum(const Totals& local) {
  if (alone()) return local;
  const Stream compute = device_.compute_stream();
  DeviceReport& landing = sum_landing_->total;
  landing = {.loss_sum = local.loss_sum, .correct = local.correct, .samples = local.samples};
  device_.CopyAsync(report_, &landing, sizeof landing);
  communicator_->AllReduce(report_, compute);
  device_.CopyAsync(&landing, report_, sizeof landing);
  idle_->Record(compute);
  watch_->Await(*idle_, "sum over the ranks", step_);
  return {landing.loss_sum, landing.correct, landing.samples};
}

void DeviceReplicated::UseAverage(bool average) {
  const int slot = AverageSlotOf(*optimizer_);
  if (sharded()) {
    ReadAverage(average);
  } else {
    Bind(average ? SlotOf(slot) : state_.as<float>());
  }
  model_->ParametersChanged(0, model_->layout().total);
}

void DeviceReplicated::Finish() {
  Sum({});  // between machines nothing else says that all have come
  if (communicator_ != nullptr) communicator_->Finish(deadline());
  group_->Barrier("finishing", deadline());
  ended_ = true;
}

std::span<const float> DeviceReplicated::Downloaded(int index) const {
  const auto i = static_cast<size_t>(index);
  if (host_step_[i] != step_) {
    host_[i].resize(total());
    const float* const from = index == 0 ? state_.as<float>() : SlotOf(index - 1);
    device_.Download(host_[i].data(), from, total() * sizeof(float));
    host_step_[i] = step_;
  }
  return host_[i];
}

void DeviceReplicated::Restore(int64_t step, const Fill& fill) {
  if (options_.world.rank == 0) {
    try {
      for (std::vector<float>& part : host_) part.assign(total(), 0);
      const std::vector<std::span<float>> slots(host_.begin() + 1, host_.end());
      fill(host_[0], slots);
    } catch (...) {
      Abort();
      throw;
    }
    const size_t bytes = total() * sizeof(float);
    device_.Upload(state_.data(), host_[0].data(), bytes);
    for (int i = 0; i < optimizer_->slots() && !sharded(); ++i) {
      device_.Upload(SlotOf(i), host_[1 + static_cast<size_t>(i)].data(), bytes);
    }
  }
  host_step_.assign(host_.size(), -1);
  step_ = step;
  watch_->Started(step);
  BroadcastState();
  if (sharded()) SpreadSlots();
}

void DeviceReplicated::Abort() noexcept {
  if (group_ != nullptr) group_->Abort();
  if (communicator_ != nullptr) communicator_->Abort();
}

}  // namespace lockstep::trainer::strategy
