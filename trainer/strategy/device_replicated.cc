#include "trainer/strategy/device_replicated.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "common/log.h"
#include "trainer/error.h"
#include "trainer/strategy/buckets.h"
#include "trainer/strategy/device_ops.h"
#include "trainer/strategy/meeting.h"

namespace lockstep::trainer::strategy {
namespace {

using collectives::DeviceReport;

// PyTorch's DDP found 25 MB to be about right (arXiv 2006.15704, section 5.4).
constexpr size_t kBucket = 25'000'000 / sizeof(float);
// A sum of this many floats takes longer than to start another.
constexpr size_t kWorthTwoBuckets = 1024 * 1024;
// One step in so many is taken apart by events. More than there are in flight: the events are read by then.
constexpr uint64_t kMeasureEvery = 16;

// A step that is nearly done is looked for at once, another one less and less often.
constexpr auto kSpin = std::chrono::microseconds(50);
constexpr auto kLongestPause = std::chrono::microseconds(200);
constexpr auto kLookAtPeers = std::chrono::milliseconds(50);

// The report's first half is copied from the loss kernel's sums as they are.
static_assert(offsetof(DeviceReport, loss_sum) == offsetof(LossSums, loss_sum) &&
              offsetof(DeviceReport, correct) == offsetof(LossSums, correct));
constexpr size_t kLossHalf = offsetof(DeviceReport, samples);

size_t RoundUp(size_t value, size_t to) { return (value + to - 1) / to * to; }

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

// What a communicator says may only be that another rank has given up; the machine's group knows why.
template <typename Work>
void DeviceReplicated::WithOthers(Work&& work) {
  try {
    work();
  } catch (const CollectiveLost&) {
    group_->LookAtPeers("all-reduce", [](int) { return true; });
    throw;
  }
}

void DeviceReplicated::Setup(Model& model, Optimizer& optimizer, uint64_t seed) {
  model_ = &model;
  optimizer_ = &optimizer;
  l2_ranges_ = model.layout().l2_ranges();
  for (const Variable& variable : model.layout().variables) {
    if (variable.l2 != 0) penalised_.push_back(variable);
  }
  CompareModels(options_, model.layout(), optimizer.slots());
  Connect();
  Allocate();
  model.Bind({state_.as<float>(), total()}, {gradients_, total()});
  if (options_.world.rank == 0) model.Initialize(seed);
  BroadcastState();
  group_->Barrier("setting up", deadline());
}

void DeviceReplicated::Connect() {
  const World& world = options_.world;
  DeviceOpsChoice choice;
  if (!alone()) choice = ChooseDeviceOps(options_.ops, world, TellDevices(options_));
  group_ = JoinMachine(options_);
  control_ = group_->CreateSegment("control", sizeof(Member) * static_cast<size_t>(world.local_size),
                                   Clock::now() + options_.setup_timeout);
  members_ = control_.View<Member>(0, static_cast<size_t>(world.local_size)).data();
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
  stride_ = RoundUp(total(), 64);
  state_ = Buffer(allocator, (1 + slots) * stride_ * sizeof(float));
  exchange_ = Buffer(allocator, stride_ * sizeof(float) + sizeof(DeviceReport));
  gradients_ = exchange_.as<float>();
  report_ = reinterpret_cast<DeviceReport*>(gradients_ + stride_);
  const size_t squares = penalised_.size() * sizeof(double);
  small_ = Buffer(device_.allocator(), kBufferAlignment + squares);
  rate_ = small_.as<float>();
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
  recordable_ = options_.record_steps && (alone() || communicator_->recordable());
  if (alone()) return;

  for (const collectives::Range range : CutIntoBuckets(model_->layout(), kBucket, kWorthTwoBuckets)) {
    buckets_.push_back({.range = range,
                        .ready = device_.MakeEvent(false),
                        .reduced = device_.MakeEvent(false),
                        .before = device_.MakeEvent(true),
                        .after = device_.MakeEvent(true)});
  }
  reported_ = device_.MakeEvent(false);
  report_reduced_ = device_.MakeEvent(false);
  before_report_ = device_.MakeEvent(true);
  after_report_ = device_.MakeEvent(true);
  for (const Buffer* buffer : {&state_, &exchange_}) {
    communicator_->Register(buffer->data(), buffer->bytes(), Clock::now() + options_.setup_timeout);
  }
  if (options_.world.rank == 0) {
    log::Info("gradients: " + communicator_->description() + ", since " + why_these_ops_);
  }
}

// Rank 0's parameters and slots on every rank.
void DeviceReplicated::BroadcastState() {
  if (!alone()) {
    communicator_->Broadcast(state_.data(), state_.bytes(), 0, device_.compute_stream());
    idle_->Record(device_.compute_stream());
    Await(*idle_, "broadcast of the parameters", 0);
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
  members_[options_.world.local_rank].started.store(number);
  InStep(number, [&] {
    device_.SetFloat(rate_, optimizer_->Rate(number));
    if (!alone()) {
      device_.CopyAsync(&report_->samples, &flight.landing->mine.samples, sizeof(DeviceReport) - kLossHalf);
    }
    WithOthers([&] { Run(batch, flight.measured); });
    device_.CopyAsync(&flight.landing->sums, model_->loss_sums(), sizeof(LossSums));
    if (!alone()) device_.CopyAsync(&flight.landing->total, report_, sizeof(DeviceReport));
    if (!penalised_.empty()) {
      device_.CopyAsync(flight.squares, squares_, penalised_.size() * sizeof(double));
    }
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
  size_t ready = 0;
  model_->EnqueueTrainStep(
      batch.inputs, batch.labels, batch.local_samples, 1.0f / static_cast<float>(batch.global_samples),
      [&](int64_t, int64_t end) {
        for (; ready < buckets_.size() && buckets_[ready].range.end <= static_cast<size_t>(end); ++ready) {
          buckets_[ready].ready->Record(compute);
        }
      });
  if (alone()) {
    Update(0, total());
  } else {
    SumOverRanks(measured);
  }
  model_->ParametersUpdated(0, model_->layout().total);
}

// The sums are enqueued behind the whole pass, so that no wait for another process holds it up; on the device
// each begins when its bucket is ready.
void DeviceReplicated::SumOverRanks(bool measured) {
  const Stream compute = device_.compute_stream(), communication = device_.communication_stream();
  device_.CopyAsync(report_, model_->loss_sums(), kLossHalf);
  reported_->Record(compute);
  for (const Bucket& bucket : buckets_) {
    bucket.ready->MakeWait(communication);
    communicator_->AllReduce(gradients_ + bucket.range.begin, bucket.range.size(), communication);
    bucket.reduced->Record(communication);
  }
  reported_->MakeWait(communication);
  communicator_->AllReduce(report_, communication);
  report_reduced_->Record(communication);

  const auto wait = [&](DeviceEvent& done, DeviceEvent& before, DeviceEvent& after) {
    if (measured) before.Record(compute);
    done.MakeWait(compute);
    if (measured) after.Record(compute);
  };
  for (const Bucket& bucket : buckets_) {
    wait(*bucket.reduced, *bucket.before, *bucket.after);
    Update(bucket.range.begin, bucket.range.end);
  }
  wait(*report_reduced_, *before_report_, *after_report_);
}

void DeviceReplicated::Update(size_t begin, size_t end) {
  UpdateBuffers buffers{.parameters = state_.as<float>(),
                        .gradients = gradients_,
                        .rate = rate_,
                        .rounded = model_->rounded_copies()};
  for (int i = 0; i < optimizer_->slots(); ++i) {
    buffers.slots[i] = state_.as<float>() + static_cast<size_t>(1 + i) * stride_;
  }
  // (What the step's number decides is in rate_.)
  optimizer_->Update(1, buffers, static_cast<int64_t>(begin), static_cast<int64_t>(end), l2_ranges_);
}

// How long the compute stream stood still for the others.
double DeviceReplicated::TakeExposed() {
  double seconds = after_report_->SecondsSince(*before_report_);
  for (const Bucket& bucket : buckets_) seconds += bucket.after->SecondsSince(*bucket.before);
  return seconds;
}

StepResult DeviceReplicated::FinishStep() {
  Flight& flight = flights_[finished_ % kInFlight];
  InStep(step_ + 1, [&] { Await(*flight.done, "all-reduce", step_ + 1); });
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
  ++finished_;
  ++step_;
  return {.loss = total.loss_sum / static_cast<double>(flight.global_samples) + penalty,
          .correct = total.correct,
          .samples = total.samples,
          .stop = total.stop > 0,
          .collective_seconds = exposed_,
          .collective_bytes = alone() ? 0 : static_cast<int64_t>(this->total() * sizeof(float))};
}

void DeviceReplicated::Await(DeviceEvent& event, const std::string& operation, int64_t steps) {
  const auto start = Clock::now();
  const auto everybody = [](int) { return true; };
  const auto behind = [&](int r) { return members_[r].started.load() < steps; };
  auto look_at_peers = start + kLookAtPeers;
  std::chrono::nanoseconds pause = std::chrono::microseconds(5);
  while (!event.Done()) {
    if (communicator_ != nullptr) WithOthers([&] { communicator_->Check(); });
    const auto now = Clock::now();
    if (now >= look_at_peers) {
      look_at_peers = now + kLookAtPeers;
      group_->LookAtPeers(operation, everybody);
      if (now - start >= options_.collective_timeout) {
        if (!alone()) group_->GiveUp(operation, behind, "the others' devices", now - start);
        throw DeviceLost(operation + ": " + device_.identity().name + " (" + device_.identity().uuid +
                         ") has not answered in time");
      }
    }
    if (now - start < kSpin) continue;
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::nanoseconds>(pause * 2, kLongestPause);
  }
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
  Await(*idle_, "sum over the ranks", step_);
  return {landing.loss_sum, landing.correct, landing.samples};
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
    device_.Download(host_[i].data(), state_.as<float>() + i * stride_, total() * sizeof(float));
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
    for (size_t i = 0; i < host_.size(); ++i) {
      device_.Upload(state_.as<float>() + i * stride_, host_[i].data(), total() * sizeof(float));
    }
  }
  host_step_.assign(host_.size(), -1);
  step_ = step;
  members_[options_.world.local_rank].started.store(step);
  BroadcastState();
}

void DeviceReplicated::Abort() noexcept {
  if (group_ != nullptr) group_->Abort();
  if (communicator_ != nullptr) communicator_->Abort();
}

}  // namespace lockstep::trainer::strategy
