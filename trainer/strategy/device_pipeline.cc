#include "trainer/strategy/device_pipeline.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/log.h"
#include "trainer/error.h"
#include "trainer/strategy/device_ops.h"
#include "trainer/strategy/meeting.h"
#include "trainer/strategy/micro_batch.h"

namespace lockstep::trainer::strategy {
namespace {

using Clock = std::chrono::steady_clock;
using collectives::DeviceReport;

}  // namespace

DevicePipeline::DevicePipeline(const Options& options)
    : options_(options),
      device_(*options.device),
      place_(PlaceInPipeline(options.world.rank, options.world.size, options.pipeline.count())) {}

DevicePipeline::~DevicePipeline() {
  // The others must not wait for a rank that leaves early, nor this one's streams for them.
  if (!ended_) Abort();
}

// Names the step in what goes wrong between the ranks. The device is not to be stuck behind the others'.
template <typename Work>
void DevicePipeline::InStep(int64_t step, Work&& work) {
  try {
    watch_->WithOthers(work);
  } catch (const CollectiveLost& lost) {
    Abort();
    throw CollectiveLost("step " + std::to_string(step) + ": " + lost.what());
  }
}

void DevicePipeline::Setup(Model& model, Optimizer& optimizer, uint64_t seed) {
  model_ = &model;
  optimizer_ = &optimizer;
  seed_ = seed;
  ranges_ = model.layout().update_ranges();
  for (const Variable& variable : model.layout().variables) {
    if (variable.l2 != 0 && leads()) penalised_.push_back(variable);
  }
  facts_ = ExchangeFacts(options_, model, optimizer.slots(), seed);
  Allocate();
  Connect();
  BindTo(state_.as<float>());
  model.Initialize(seed);  // the same on every rank of the stage
  group_->Barrier("setting up", deadline());
}

size_t DevicePipeline::Places(int stage) const {
  const PipelineOptions& plan = options_.pipeline;
  return static_cast<size_t>(PassesInFlight(plan.schedule, stage, plan.count(), plan.MicroBatches()));
}

void DevicePipeline::Allocate() {
  const auto slots = static_cast<size_t>(optimizer_->slots());
  const auto samples = static_cast<size_t>(model_->max_pass());
  stride_ = RoundUp(total(), kBufferAlignment / sizeof(float));
  state_ = Buffer(device_.allocator(), (1 + slots) * stride_ * sizeof(float));
  micro_gradients_ = Buffer(device_.allocator(), stride_ * sizeof(float));
  sums_ = Buffer(device_.shareable(), stride_ * sizeof(float));
  norm_ = Buffer(device_.shareable(), sizeof(DeviceReport));
  if (model_->has_loss()) {
    output_gradient_ = Buffer(device_.allocator(), samples * static_cast<size_t>(model_->outputs()) *
                                                       SizeOf(model_->output_gradient_type()));
  }
  if (place_.stage > 0) {
    input_gradient_bytes_ =
        RoundUp(samples * static_cast<size_t>(FactsOf(place_.stage - 1).gradient_bytes), kBufferAlignment);
    input_gradients_ = Buffer(device_.allocator(), Places(place_.stage - 1) * input_gradient_bytes_);
  }
  rates_ = std::make_unique<DeviceRates>(device_);
  const size_t squares = penalised_.size() * sizeof(double);
  small_ = Buffer(device_.allocator(), squares);
  squares_ = small_.as<double>();
  for (const Buffer* buffer : {&state_, &micro_gradients_, &sums_}) {
    device_.Zero(buffer->data(), buffer->bytes());
  }
  device_.Synchronize();

  const size_t landing = RoundUp(sizeof(Landing) + squares, kBufferAlignment);
  pinned_ = Buffer(device_.pinned(), kInFlight * landing);
  char* place = pinned_.as<char>();
  for (Flight& flight : flights_) {
    flight.landing = reinterpret_cast<Landing*>(place);
    flight.squares = reinterpret_cast<double*>(place + sizeof(Landing));
    flight.done = device_.MakeEvent(false);
    place += landing;
  }
  idle_ = device_.MakeEvent(false);
  if (options_.trace != nullptr) trace_ = std::make_unique<DeviceTrace>(device_, *options_.trace, kInFlight);
  host_.resize(1 + slots);
  host_step_.assign(1 + slots, -1);
}

void DevicePipeline::Connect() {
  const World& world = options_.world;
  const auto setup_deadline = Clock::now() + options_.setup_timeout;
  const DeviceOpsChoice choice = ChooseDeviceOps(options_.ops, world, TellDevices(options_));
  ops_ = choice.ops;
  shared_devices_ = choice.shared_devices;
  group_ = JoinMachine(options_);
  watch_ = std::make_unique<DeviceWatch>(DeviceWatch::Options{.device = device_,
                                                              .group = *group_,
                                                              .timeout = options_.collective_timeout,
                                                              .check = [this] { CheckCommunicators(); }},
                                         setup_deadline);
  reports_ = std::make_unique<SharedSum>(SharedSum::Options{
      .group = group_.get(), .deadline = [this] { return deadline(); }, .operation = "all-reduce"});
  exported_ = group_->CreateSegment("exported", WholeFloats(facts_, optimizer_->slots()) * sizeof(float),
                                    setup_deadline, /*resident=*/false);
  if (place_.pipelines > 1) {
    of_stage_ = ConnectGroup("stage-" + std::to_string(place_.stage), place_.pipeline, place_.pipelines,
                             place_.stage, stages());
    of_stage_->Register(sums_.data(), sums_.bytes(), setup_deadline);
  }
  if (optimizer_->clips_by_norm()) {
    of_all_ = ConnectGroup("devices", world.rank, world.size, 0, 1);
    of_all_->Register(norm_.data(), norm_.bytes(), setup_deadline);
  }
  // (Each with the one before first: so from stage 0 on all come to it.)
  if (place_.stage > 0) before_ = MakeLink(place_.stage - 1);
  if (place_.stage + 1 < stages()) after_ = MakeLink(place_.stage);
  if (after_ != nullptr && leads()) {
    log::Info("pipeline: stage " + std::to_string(place_.stage) + " to the next over " +
              after_->description() + ", since " + choice.why);
  }
  if (of_stage_ != nullptr && world.rank == 0) {
    log::Info("gradients: " + of_stage_->description() + ", since " + choice.why);
  }
}

std::unique_ptr<collectives::DeviceCommunicator> DevicePipeline::ConnectGroup(const std::string& key,
                                                                              int rank, int size, int first,
                                                                              int stride) {
  return options_.communicators->connect({.ops = ops_,
                                          .rank = rank,
                                          .size = size,
                                          .local_rank = rank,
                                          .local_size = size,
                                          .first_rank = first,
                                          .rank_stride = stride,
                                          .shared_devices = shared_devices_,
                                          .store = options_.store,
                                          .key = key,
                                          .interface = options_.interface,
                                          .deadline = Clock::now() + options_.setup_timeout,
                                          .timeout = options_.collective_timeout,
                                          .segments = options_.segments},
                                         device_);
}

// Between `stage` and the next.
std::unique_ptr<collectives::DeviceLink> DevicePipeline::MakeLink(int stage) {
  const StageFacts& facts = FactsOf(stage);
  const int lower = place_.pipeline * stages() + stage;
  const auto samples = static_cast<size_t>(model_->max_pass());
  return options_.communicators->link({.ops = ops_,
                                       .lower_rank = lower,
                                       .asks = stage == place_.stage,
                                       .shared_devices = shared_devices_,
                                       .places = Places(stage),
                                       .question_bytes = samples * static_cast<size_t>(facts.output_bytes),
                                       .answer_bytes = samples * static_cast<size_t>(facts.gradient_bytes),
                                       .store = options_.store,
                                       .key = "link/" + std::to_string(lower),
                                       .interface = options_.interface,
                                       .deadline = Clock::now() + options_.setup_timeout,
                                       .timeout = options_.collective_timeout,
                                       .segments = options_.segments},
                                      device_);
}

void DevicePipeline::CheckCommunicators() {
  for (const auto& communicator : {of_stage_.get(), of_all_.get()}) {
    if (communicator != nullptr) communicator->Check();
  }
  for (const auto& link : {before_.get(), after_.get()}) {
    if (link != nullptr) link->Check();
  }
}

void DevicePipeline::BindTo(float* parameters) {
  model_->Bind({parameters, total()}, micro_gradients_.span<float>());
}

void DevicePipeline::StartStep(const Batch& batch) {
  const int64_t number = steps_started() + 1;
  Flight& flight = flights_[started_ % kInFlight];
  flight.local_samples = batch.local_samples;
  flight.global_samples = batch.global_samples;
  flight.stop = stop_requested();
  flight.measured = started_ % kMeasureEvery == 0;
  flight.moved = 0;
  if (flight.measured) waits_used_ = 0;
  ++started_;
  watch_->Started(number);
  if (trace_ != nullptr) trace_->BeginStep(number);
  InStep(number, [&] {
    rates_->Tell(optimizer_->Rates(number));
    for (size_t i = 0; i < penalised_.size(); ++i) {
      device_.SumOfSquaresAsync(state_.as<float>() + penalised_[i].offset, penalised_[i].size, squares_ + i);
    }
    Passes(batch, &flight);
    SumGradients(&flight);
    Update();
    flight.landing->sums = {};
    if (model_->has_loss() && batch.local_samples > 0) {
      device_.CopyAsync(&flight.landing->sums, model_->loss_sums(), sizeof(LossSums));
    }
    if (!penalised_.empty()) {
      device_.CopyAsync(flight.squares, squares_, penalised_.size() * sizeof(double));
    }
    if (trace_ != nullptr) trace_->EndStep();
    flight.done->Record(device_.compute_stream());
  });
}

// Of its samples; the gradients go into sums_. The hosts enqueue in the order of the schedules, in which, as
// on processors, nobody waits for somebody who waits for him.
void DevicePipeline::Passes(const Batch& batch, Flight* flight) {
  const PipelineOptions& plan = options_.pipeline;
  const ModelBatch share = ForModel(batch, seed_, nullptr);
  const int count = CountMicroBatches(share.n, plan.MicroBatches());
  if (count == 0) device_.Zero(sums_.data(), sums_.bytes());
  std::vector<const void*> inputs(Places(place_.stage));  // by slot
  for (const PipelineWork& work : MakeSchedule(plan.schedule, place_.stage, plan.count(), count)) {
    const uint64_t number = passed_ + static_cast<uint64_t>(work.micro_batch);
    const size_t slot = SlotOf(number);
    auto [micro, begin] = MicroBatchOf(*model_, share, work.micro_batch, count);
    if (work.kind == PipelineWork::Kind::kForward) {
      inputs[slot] = Inputs(micro.inputs, micro.n, flight->measured);
      const void* outputs = nullptr;
      {
        const DeviceTrace::Scope scope = Traced("forward");
        outputs = model_->Forward(micro.TrainingPass(), inputs[slot], static_cast<int>(slot));
      }
      if (after_ != nullptr) HandOn(outputs, micro.n, flight);
    } else {
      micro.inputs = inputs[slot];
      Backward(micro, begin, number, flight);
    }
  }
  passed_ += static_cast<uint64_t>(count);
}

const void* DevicePipeline::Inputs(const void* of_batch, int64_t samples, bool measured) {
  if (before_ == nullptr) return of_batch;
  const void* inputs = nullptr;
  Timed(measured, [&] {
    inputs = before_->Receive(static_cast<size_t>(samples * FactsOf(place_.stage - 1).output_bytes));
  });
  return inputs;
}

void DevicePipeline::HandOn(const void* outputs, int64_t samples, Flight* flight) {
  const int64_t bytes = samples * FactsOf(place_.stage).output_bytes;
  after_->Send(outputs, static_cast<size_t>(bytes));
  flight->moved += bytes;
}

// Of micro-batch `number`, which begins with sample `begin` of the share: the first one's gradients take the
// place of those of the step before.
void DevicePipeline::Backward(const ModelBatch& micro, int64_t begin, uint64_t number, Flight* flight) {
  const auto slot = static_cast<int>(SlotOf(number));
  void* gradient = output_gradient_.data();
  if (after_ == nullptr) {
    const DeviceTrace::Scope scope = Traced("loss");
    model_->EnqueueLoss(micro, gradient, slot, begin);
  } else {
    Timed(flight->measured, [&] {
      gradient = after_->Receive(static_cast<size_t>(micro.n * FactsOf(place_.stage).gradient_bytes));
    });
  }
  std::byte* to = nullptr;
  if (before_ != nullptr) {
    to = input_gradients_.as<std::byte>() + number % Places(place_.stage - 1) * input_gradient_bytes_;
  }
  {
    const DeviceTrace::Scope scope = Traced("backward");
    model_->Backward(micro.TrainingPass(), micro.inputs, gradient, to, {}, slot);
  }
  if (before_ != nullptr) {
    const int64_t bytes = micro.n * FactsOf(place_.stage - 1).gradient_bytes;
    before_->Send(to, static_cast<size_t>(bytes));
    flight->moved += bytes;
  }
  if (begin == 0) {
    device_.CopyAsync(sums_.data(), micro_gradients_.data(), total() * sizeof(float));
  } else {
    device_.Accumulate(1, micro_gradients_.as<float>(), sums_.as<float>(), model_->layout().total);
  }
}

// Over the pipelines, the same bits on every rank of the stage; and what their norm needs of all stages.
void DevicePipeline::SumGradients(Flight* flight) {
  const Stream compute = device_.compute_stream();
  if (of_stage_ != nullptr) {
    Timed(flight->measured, [&] { of_stage_->AllReduce(sums_.as<float>(), total(), compute); });
    flight->moved += static_cast<int64_t>(total() * sizeof(float));
  }
  if (of_all_ == nullptr) return;
  auto* const norm = norm_.as<DeviceReport>();
  optimizer_->AddPenalties(state_.as<float>(), sums_.as<float>(), 0, model_->layout().total, ranges_);
  device_.Zero(norm, sizeof *norm);
  if (leads()) device_.SumOfSquaresAsync(sums_.as<float>(), model_->layout().total, &norm->loss_sum);
  Timed(flight->measured, [&] { of_all_->AllReduce(norm, compute); });
}

// (What the step's number decides is in rates_.)
void DevicePipeline::Update() {
  const DeviceTrace::Scope scope = Traced("update");
  UpdateBuffers buffers{.parameters = state_.as<float>(),
                        .gradients = sums_.as<float>(),
                        .rates = rates_->data(),
                        .rounded = model_->rounded_copies()};
  if (of_all_ != nullptr) buffers.squared_norm = &norm_.as<DeviceReport>()->loss_sum;
  for (int i = 0; i < optimizer_->slots(); ++i) buffers.slots[i] = OptimizerSlot(i);
  optimizer_->Update(1, buffers, 0, model_->layout().total, ranges_);
  model_->ParametersUpdated(0, model_->layout().total);
}

DeviceTrace::Scope DevicePipeline::Traced(const char* name) {
  return {trace_.get(), trace::Track::kCompute, device_.compute_stream(), name};
}

template <typename Enqueue>
void DevicePipeline::Timed(bool measured, Enqueue&& enqueue) {
  const DeviceTrace::Scope scope = Traced("wait");
  if (!measured) return enqueue();
  if (waits_used_ == waits_.size()) waits_.push_back({device_.MakeEvent(true), device_.MakeEvent(true)});
  const Wait& wait = waits_[waits_used_++];
  wait.before->Record(device_.compute_stream());
  enqueue();
  wait.after->Record(device_.compute_stream());
}

// How long the compute stream stood still for the others.
double DevicePipeline::TakeExposed() const {
  double seconds = 0;
  for (size_t i = 0; i < waits_used_; ++i) seconds += waits_[i].after->SecondsSince(*waits_[i].before);
  return seconds;
}

StepResult DevicePipeline::FinishStep() {
  Flight& flight = flights_[finished_ % kInFlight];
  InStep(step_ + 1, [&] { watch_->Await(*flight.done, "all-reduce", step_ + 1); });
  const LossResult mine =
      model_->has_loss() ? ResultOf(flight.landing->sums, model_->outputs()) : LossResult{};
  if (flight.measured) exposed_ = TakeExposed();
  if (trace_ != nullptr) trace_->FinishStep();
  double penalty = 0;
  for (size_t i = 0; i < penalised_.size(); ++i) penalty += penalised_[i].l2 * flight.squares[i];
  Report all{mine.loss_sum, static_cast<double>(mine.correct),
             model_->has_loss() ? static_cast<double>(flight.local_samples) : 0, flight.stop ? 1.0 : 0.0,
             penalty};
  InStep(step_ + 1, [&] { reports_->Sum(all); });
  ++finished_;
  ++step_;
  return {.loss = all[0] / static_cast<double>(flight.global_samples) + all[4],
          .correct = static_cast<int64_t>(all[1]),
          .samples = static_cast<int64_t>(all[2]),
          .stop = all[3] > 0,
          .collective_seconds = exposed_,
          .collective_bytes = flight.moved};
}

// Slots are taken in turns here too, so that stages work at the same time: an answer without bytes says that
// the activations were used.
Totals DevicePipeline::Evaluate(Model& model, const void* inputs, const void* labels, int64_t n) {
  const ModelBatch share{.inputs = inputs, .labels = labels, .n = n};
  const int64_t most = model.max_pass();
  const auto count = static_cast<int>((n + most - 1) / most);
  const auto places = static_cast<int>(Places(place_.stage));
  Flight unused;
  watch_->WithOthers([&] {
    for (int i = 0; i < count; ++i, ++passed_) {
      const auto [micro, begin] = MicroBatchOf(model, share, i, count);
      if (after_ != nullptr && i >= places) after_->Receive(0);
      const auto slot = static_cast<int>(SlotOf(passed_));
      const void* const outputs = model.Forward({.n = micro.n}, Inputs(micro.inputs, micro.n, false), slot);
      if (before_ != nullptr) before_->Send(nullptr, 0);
      if (after_ != nullptr) {
        HandOn(outputs, micro.n, &unused);
      } else {
        model.EnqueueLoss(micro, nullptr, slot, begin);
      }
    }
    for (int i = 0; i < std::min(count, places) && after_ != nullptr; ++i) after_->Receive(0);
    idle_->Record(device_.compute_stream());
    watch_->Await(*idle_, "evaluation", step_);
  });
  if (!model.has_loss() || n == 0) return {};
  LossSums sums;
  device_.Download(&sums, model.loss_sums(), sizeof sums);
  const LossResult result = ResultOf(sums, model.outputs());
  return {result.loss_sum, result.correct, n};
}

double DevicePipeline::L2Penalty(Model& model) {
  std::array<double, 1> sum{leads() ? model.L2Penalty() : 0};
  watch_->WithOthers([&] { reports_->Sum(sum); });
  return sum[0];
}

Totals DevicePipeline::Sum(const Totals& local) {
  std::array<double, 3> sum{local.loss_sum, static_cast<double>(local.correct),
                            static_cast<double>(local.samples)};
  watch_->WithOthers([&] { reports_->Sum(sum); });
  return {sum[0], static_cast<int64_t>(sum[1]), static_cast<int64_t>(sum[2])};
}

void DevicePipeline::UseAverage(bool average) {
  const int slot = AverageSlotOf(*optimizer_);
  BindTo(average ? OptimizerSlot(slot) : state_.as<float>());
  model_->ParametersChanged(0, model_->layout().total);
}

void DevicePipeline::Finish() {
  device_.Synchronize();
  group_->Barrier("finishing", deadline());
  for (const auto& link : {before_.get(), after_.get()}) {
    if (link != nullptr) link->Finish(deadline());
  }
  for (const auto& communicator : {of_stage_.get(), of_all_.get()}) {
    if (communicator != nullptr) communicator->Finish(deadline());
  }
  group_->Barrier("finishing", deadline());
  ended_ = true;
}

void DevicePipeline::Abort() noexcept {
  if (group_ != nullptr) group_->Abort();
  for (const auto& communicator : {of_stage_.get(), of_all_.get()}) {
    if (communicator != nullptr) communicator->Abort();
  }
  for (const auto& link : {before_.get(), after_.get()}) {
    if (link != nullptr) link->Abort();
  }
}

std::vector<NamedShape> DevicePipeline::Variables(const Model&) const { return AllVariables(facts_); }

std::vector<NamedShape> DevicePipeline::StateVariables(const Model&) const {
  return AllStateVariables(facts_);
}

Shares DevicePipeline::ShareOut(const Model& model, int ranks) const {
  return ranks <= 1 ? Strategy::ShareOut(model, 1) : ShareOutStages(facts_, options_.world, ranks);
}

void DevicePipeline::Export(Model& model, const Shares& shares, WholeState* to) {
  if (shares.by_rank.size() > 1) {
    if (to == nullptr) return;
    return Strategy::Export(model, {.by_rank = {WithinStage(facts_, place_.stage, shares.mine())}}, to);
  }
  std::vector<const float*> flats(host_.size(), nullptr);
  for (size_t i = 0; i < flats.size() && leads(); ++i) flats[i] = Downloaded(static_cast<int>(i)).data();
  CollectStages(
      facts_,
      {.group = *group_, .segment = exported_, .place = place_, .deadline = [this] { return deadline(); }},
      model, flats, to);
}

void DevicePipeline::Import(Model& model, int64_t step, const WholeState& from) {
  const StageState mine = StageOf(facts_, place_.stage, from);
  model.ImportState(mine.state);
  Restore(step, [&](std::span<float> parameters, std::span<const std::span<float>> slots) {
    model.ImportCanonical(mine.parameters, parameters.data());
    for (size_t i = 0; i < slots.size(); ++i) model.ImportCanonical(mine.slots[i], slots[i].data());
  });
}

void DevicePipeline::Restore(int64_t step, const Fill& fill) {
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
  host_step_.assign(host_.size(), -1);
  model_->ParametersChanged(0, model_->layout().total);
  step_ = step;
  watch_->Started(step);
  group_->Barrier("restoring", deadline());
}

std::span<const float> DevicePipeline::Downloaded(int index) const {
  const auto i = static_cast<size_t>(index);
  if (host_step_[i] != step_) {
    host_[i].resize(total());
    device_.Download(host_[i].data(), state_.as<float>() + i * stride_, total() * sizeof(float));
    host_step_[i] = step_;
  }
  return host_[i];
}

}  // namespace lockstep::trainer::strategy
