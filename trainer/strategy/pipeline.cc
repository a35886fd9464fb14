#include "trainer/strategy/pipeline.h"

#include <algorithm>
#include <cstring>

#include "trainer/collectives/sum.h"
#include "trainer/error.h"
#include "trainer/strategy/meeting.h"
#include "trainer/strategy/micro_batch.h"
#include "trainer/strategy/pipeline_whole.h"

namespace lockstep::trainer::strategy {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPage = 4096;

}  // namespace

Pipeline::Pipeline(const Options& options)
    : options_(options),
      place_(PlaceInPipeline(options.world.rank, options.world.size, options.pipeline.count())) {}

void Pipeline::Setup(Model& model, Optimizer& optimizer, uint64_t seed) {
  model_ = &model;
  optimizer_ = &optimizer;
  seed_ = seed;
  micro_capacity_ = model.max_pass();
  group_ = JoinMachine(options_);
  facts_ = ExchangeFacts(options_, model, optimizer.slots(), seed);
  MakeMemory();
  CutParts();
  model.Bind({mine().parameters, total()}, micro_gradients_.span<float>());
  if (leads()) model.Initialize(seed);
  KeepState(turn_);
  group_->Barrier("initialising the parameters", deadline());
  if (!leads()) model.ParametersChanged(0, model.layout().total);
}

// How many places there are between a stage and the next.
size_t Pipeline::Places(int stage) const {
  const PipelineOptions& plan = options_.pipeline;
  return static_cast<size_t>(PassesInFlight(plan.schedule, stage, plan.count(), plan.MicroBatches()));
}

size_t Pipeline::LinkBytes(int stage) const {
  const StageFacts& facts = facts_[static_cast<size_t>(stage)];
  const auto bytes = [this](int64_t a_sample) {
    return RoundUp(static_cast<size_t>(a_sample * micro_capacity_), kBufferAlignment);
  };
  return RoundUp(Places(stage) * (bytes(facts.output_bytes) + bytes(facts.gradient_bytes)), kPage);
}

// The link after `stage`, as the local rank `peer`'s neighbour sees it.
Pipeline::Link Pipeline::MakeLink(int stage, size_t offset, Boundary* boundary, int peer) const {
  const StageFacts& facts = facts_[static_cast<size_t>(stage)];
  Link link{.boundary = boundary,
            .peer = peer,
            .places = Places(stage),
            .activation_bytes = static_cast<size_t>(facts.output_bytes),
            .gradient_bytes = static_cast<size_t>(facts.gradient_bytes)};
  const auto capacity = static_cast<size_t>(micro_capacity_);
  const auto cut = [&](size_t a_sample, std::vector<std::byte*>* places) {
    for (size_t i = 0; i < link.places; ++i) {
      places->push_back(buffers_.data() + offset);
      offset += RoundUp(a_sample * capacity, kBufferAlignment);
    }
  };
  cut(link.activation_bytes, &link.activations);
  cut(link.gradient_bytes, &link.gradients);
  return link;
}

// What each rank updates, rank after rank, in pieces.
void Pipeline::CutParts() {
  std::vector<collectives::Range> pieces;
  for (int pipeline = 0; pipeline < place_.pipelines; ++pipeline) {
    for (const StageFacts& facts : facts_) {
      first_piece_.push_back(pieces.size());
      const auto part =
          collectives::PartOf(static_cast<size_t>(facts.parameters), pipeline, place_.pipelines);
      for (const auto& [begin, end] : CutEvenly(part.size(), kPiece)) {
        pieces.push_back({part.begin + begin, part.begin + end});
      }
    }
  }
  first_piece_.push_back(pieces.size());
  journal_.Create(*group_, std::move(pieces), 1 + optimizer_->slots(), deadline());
}

// The same segments on every rank, of which each touches, and so takes, the parts of its stage and its links.
void Pipeline::MakeMemory() {
  const auto ranks = static_cast<size_t>(options_.world.size);
  const auto slots = static_cast<size_t>(optimizer_->slots());
  const size_t links = ranks - static_cast<size_t>(place_.pipelines);
  control_ = group_->CreateSegment("control", ranks * sizeof(Member) + links * sizeof(Boundary), deadline());
  members_ = control_.View<Member>(0, ranks).data();
  Boundary* const boundaries = control_.View<Boundary>(ranks * sizeof(Member), links).data();

  size_t bytes = 0;
  const auto take = [&bytes](size_t size) {
    const size_t offset = bytes;
    bytes += RoundUp(size, kPage);
    return offset;
  };
  std::vector<size_t> offsets;  // by stage: parameters, slots, sums by pipeline, two states
  for (const StageFacts& facts : facts_) {
    for (size_t i = 0; i < 1 + slots + static_cast<size_t>(place_.pipelines); ++i) {
      offsets.push_back(take(static_cast<size_t>(facts.parameters) * sizeof(float)));
    }
    for (int i = 0; i < 2; ++i) offsets.push_back(take(static_cast<size_t>(facts.state) * sizeof(float)));
  }
  std::vector<size_t> link_offsets;  // by pipeline, stage
  for (int pipeline = 0; pipeline < place_.pipelines; ++pipeline) {
    for (int stage = 0; stage + 1 < stages(); ++stage) link_offsets.push_back(take(LinkBytes(stage)));
  }
  buffers_ = group_->CreateSegment("buffers", bytes, deadline(), /*resident=*/false);
  size_t next = 0;
  const auto view = [&](int64_t floats) {
    return buffers_.View<float>(offsets[next++], static_cast<size_t>(floats));
  };
  for (const StageFacts& facts : facts_) {
    StageMemory& memory = memory_.emplace_back();
    memory.parameters = view(facts.parameters).data();
    for (size_t i = 0; i < slots; ++i) memory.slots.push_back(view(facts.parameters).data());
    for (int i = 0; i < place_.pipelines; ++i) memory.sums.push_back(view(facts.parameters).data());
    for (std::span<float>& state : memory.states) state = view(facts.state);
  }
  const auto links_of_one = static_cast<size_t>(stages() - 1);  // pipeline
  const auto link_after = [&](int stage, int peer_stage) {
    const auto index = static_cast<size_t>(place_.pipeline) * links_of_one + static_cast<size_t>(stage);
    return MakeLink(stage, link_offsets[index], boundaries + index, RankOf(peer_stage, place_.pipeline));
  };
  if (place_.stage > 0) before_ = link_after(place_.stage - 1, place_.stage - 1);
  if (place_.stage + 1 < stages()) after_ = link_after(place_.stage, place_.stage + 1);

  exported_ = group_->CreateSegment("exported", WholeFloats(facts_, optimizer_->slots()) * sizeof(float),
                                    deadline(), /*resident=*/false);

  micro_gradients_ = ZeroedHostBuffer(total() * sizeof(float));
  if (model_->has_loss()) {
    output_gradient_ = Buffer(HostAllocator(), static_cast<size_t>(micro_capacity_ * model_->outputs()) *
                                                   SizeOf(model_->output_gradient_type()));
  }
}

void Pipeline::StartStep(const Batch& batch) {
  step_report_ = reports_;
  global_samples_ = batch.global_samples;
  in_step_ = true;
  result_ = Step(batch);
}

// From AddUp on the step is committed. Who comes to the end of it after the group has failed must not begin
// to update: others already look at what there is.
StepResult Pipeline::Step(const Batch& batch) {
  waited_ = {};
  moved_ = 0;
  const double penalty = leads() ? model_->L2Penalty() : 0;
  const LossResult result = Passes(batch);
  KeepState(turn_ + 1);
  const double squared_norm = SumGradients();
  const auto samples = static_cast<double>(model_->has_loss() ? batch.local_samples : 0);
  const Report totals = AddUp({result.loss_sum, static_cast<double>(result.correct), samples,
                               stop_requested() ? 1.0 : 0.0, penalty, squared_norm},
                              StepName() + "all-reduce");
  squared_norm_ = totals[5];
  group_->ThrowIfFailed(StepName() + "all-reduce");
  Update();
  return Finished(totals);
}

StepResult Pipeline::Finished(const Report& totals) {
  in_step_ = false;
  ++turn_;
  ++step_;
  return {.loss = totals[0] / static_cast<double>(global_samples_) + totals[4],
          .correct = static_cast<int64_t>(totals[1]),
          .samples = static_cast<int64_t>(totals[2]),
          .stop = totals[3] > 0,
          .collective_seconds = std::chrono::duration<double>(waited_).count(),
          .collective_bytes = moved_};
}

// Of its samples; the gradients go into my_sums().
LossResult Pipeline::Passes(const Batch& batch) {
  const PipelineOptions& plan = options_.pipeline;
  const ModelBatch share = ForModel(batch, seed_, nullptr);
  const int count = CountMicroBatches(share.n, plan.MicroBatches());
  const auto in_flight = static_cast<int>(Places(place_.stage));
  const std::string waiting = StepName() + "all-reduce of a micro-batch";
  if (count == 0) std::fill_n(my_sums(), total(), 0.0f);
  LossResult result;
  for (const PipelineWork& work : MakeSchedule(plan.schedule, place_.stage, plan.count(), count)) {
    const uint64_t number = passed_ + static_cast<uint64_t>(work.micro_batch);
    const auto slot = static_cast<int>(number % static_cast<uint64_t>(in_flight));
    ModelBatch micro = MicroBatchOf(*model_, share, work.micro_batch, count).batch;
    const Pass pass = micro.TrainingPass();
    micro.inputs = Inputs(micro.inputs, number, waiting);
    if (work.kind == PipelineWork::Kind::kForward) {
      const void* const outputs = model_->Forward(pass, micro.inputs, slot);
      if (after_.boundary != nullptr) HandOn(outputs, micro.n, number, waiting);
      continue;
    }
    void* gradient = output_gradient_.data();
    if (after_.boundary == nullptr) {
      const LossResult loss = model_->Loss(micro, gradient, slot);
      result.loss_sum += loss.loss_sum;
      result.correct += loss.correct;
    } else {
      Await(after_.boundary->backward, number + 1, after_.peer, waiting);
      gradient = after_.gradients[number % after_.places];
    }
    void* const to = before_.boundary == nullptr ? nullptr : before_.gradients[number % before_.places];
    const bool first = work.micro_batch == 0;
    model_->Backward(
        pass, micro.inputs, gradient, to,
        [&](int64_t from, int64_t end) {
          AddGradients(static_cast<size_t>(from), static_cast<size_t>(end), first);
        },
        slot);
    if (before_.boundary == nullptr) continue;
    moved_ += micro.n * static_cast<int64_t>(before_.gradient_bytes);
    before_.boundary->backward.store(number + 1);
    group_->Wake();
  }
  passed_ += static_cast<uint64_t>(count);
  return result;
}

// Where the inputs of a micro-batch are: in the batch, or where the stage before has put them.
const void* Pipeline::Inputs(const void* inputs, uint64_t number, const std::string& operation) {
  if (before_.boundary == nullptr) return inputs;
  Await(before_.boundary->forward, number + 1, before_.peer, operation);
  return before_.activations[number % before_.places];
}

void Pipeline::HandOn(const void* outputs, int64_t n, uint64_t number, const std::string& operation) {
  // (In training the answer has always come.)
  if (number >= after_.places) {
    Await(after_.boundary->backward, number + 1 - after_.places, after_.peer, operation);
  }
  const size_t bytes = static_cast<size_t>(n) * after_.activation_bytes;
  const trace::Scope scope(options_.trace, trace::Track::kCommunication, "send",
                           {.bytes = static_cast<int64_t>(bytes)});
  std::memcpy(after_.activations[number % after_.places], outputs, bytes);
  moved_ += static_cast<int64_t>(bytes);
  after_.boundary->forward.store(number + 1);
  group_->Wake();
}

void Pipeline::AddGradients(size_t begin, size_t end, bool first) {
  float* const sum = my_sums() + begin;
  const float* const some = micro_gradients_.as<float>() + begin;
  if (first) {
    std::copy_n(some, end - begin, sum);
  } else {
    const std::array<const float*, 2> both{sum, some};
    collectives::SumInOrder(both, sum, end - begin);
  }
}

double Pipeline::SumGradients() {
  members_[options_.world.local_rank].gradients.store(turn_ + 1);
  const auto part = collectives::PartOf(total(), place_.pipeline, place_.pipelines);
  if (place_.pipelines > 1) {
    AwaitStage(&Member::gradients, StepName() + "all-reduce");
    const trace::Scope scope(options_.trace, trace::Track::kCommunication, "all-reduce",
                             {.bucket = 0, .bytes = static_cast<int64_t>(total() * sizeof(float))});
    std::vector<const float*> from;
    for (const float* sum : mine().sums) from.push_back(sum + part.begin);
    collectives::SumInOrder(from, my_sums() + part.begin, part.size());
    moved_ += static_cast<int64_t>(total() * sizeof(float));
  }
  if (!optimizer_->clips_by_norm()) return 0;
  return optimizer_->SquaredNorm(mine().parameters, my_sums(), static_cast<int64_t>(part.begin),
                                 static_cast<int64_t>(part.end),
                                 facts_[static_cast<size_t>(place_.stage)].ranges);
}

void Pipeline::Update() {
  const trace::Scope scope(options_.trace, trace::Track::kCompute, "update");
  const auto rank = static_cast<size_t>(options_.world.rank);
  const StageFacts& facts = facts_[static_cast<size_t>(place_.stage)];
  UpdateBuffers buffers{.parameters = mine().parameters, .gradients = my_sums(), .slots = {}};
  std::copy(mine().slots.begin(), mine().slots.end(), buffers.slots);
  std::array<float*, 1 + kMostSlots> kept{buffers.parameters};
  std::copy(mine().slots.begin(), mine().slots.end(), kept.begin() + 1);
  for (size_t piece = first_piece_[rank]; piece < first_piece_[rank + 1]; ++piece) {
    journal_.Begin(piece, kept.data());
    Apply(step_ + 1, facts, buffers, journal_.pieces()[piece]);
    journal_.Done(piece, turn_);
  }
  members_[options_.world.local_rank].updated.store(turn_ + 1);
  if (place_.pipelines > 1) AwaitStage(&Member::updated, StepName() + "all-reduce");
  model_->ParametersChanged(0, model_->layout().total);
}

void Pipeline::Apply(int64_t step, const StageFacts& stage, UpdateBuffers buffers, collectives::Range range) {
  if (optimizer_->clips_by_norm()) buffers.squared_norm = &squared_norm_;
  optimizer_->Update(step, buffers, static_cast<int64_t>(range.begin), static_cast<int64_t>(range.end),
                     stage.ranges);
}

Totals Pipeline::Evaluate(Model& model, const void* inputs, const void* labels, int64_t n) {
  const std::string waiting = "evaluation";
  const ModelBatch share{.inputs = inputs, .labels = labels, .n = n};
  const auto count = static_cast<int>((n + micro_capacity_ - 1) / micro_capacity_);
  LossResult result;
  for (int i = 0; i < count; ++i, ++passed_) {
    ModelBatch micro = MicroBatchOf(model, share, i, count).batch;
    micro.inputs = Inputs(micro.inputs, passed_, waiting);
    const void* const outputs = model.Forward({.n = micro.n}, micro.inputs);
    if (before_.boundary != nullptr) {
      before_.boundary->backward.store(passed_ + 1);
      group_->Wake();
    }
    if (after_.boundary != nullptr) {
      HandOn(outputs, micro.n, passed_, waiting);
      continue;
    }
    const LossResult loss = model.Loss(micro, nullptr);
    result.loss_sum += loss.loss_sum;
    result.correct += loss.correct;
  }
  return {result.loss_sum, result.correct, model.has_loss() ? n : 0};
}

void Pipeline::UseAverage(bool average) {
  const auto slot = static_cast<size_t>(AverageSlotOf(*optimizer_));
  model_->Bind({average ? mine().slots[slot] : mine().parameters, total()}, micro_gradients_.span<float>());
  model_->ParametersChanged(0, model_->layout().total);
}

double Pipeline::L2Penalty(Model& model) {
  return AddUp({leads() ? model.L2Penalty() : 0}, "sum over the stages")[0];
}

Totals Pipeline::Sum(const Totals& local) {
  const Report sum =
      AddUp({local.loss_sum, static_cast<double>(local.correct), static_cast<double>(local.samples)},
            "sum over the ranks");
  return {sum[0], static_cast<int64_t>(sum[1]), static_cast<int64_t>(sum[2])};
}

Pipeline::Report Pipeline::AddUp(const Report& mine, const std::string& operation) {
  const uint64_t number = reports_++;
  Member& me = members_[options_.world.local_rank];
  me.reports[number % 2] = mine;
  me.reported.store(number + 1);
  group_->Wake();
  for (int r = 0; r < options_.world.size; ++r) Await(members_[r].reported, number + 1, r, operation);
  return Reported(number);
}

bool Pipeline::AllHaveReported(uint64_t number) const {
  for (int r = 0; r < options_.world.size; ++r) {
    if (members_[r].reported.load() <= number) return false;
  }
  return true;
}

Pipeline::Report Pipeline::Reported(uint64_t number) const {
  Report sum{};
  for (int r = 0; r < options_.world.size; ++r) {
    const Report& theirs = members_[r].reports[number % 2];
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += theirs[i];
  }
  return sum;
}

void Pipeline::Await(const std::atomic<uint64_t>& counter, uint64_t least, int peer,
                     const std::string& operation) {
  if (counter.load() >= least) return;
  const trace::Scope scope(options_.trace, trace::Track::kCompute, "wait");
  const auto start = Clock::now();
  group_->Wait(
      operation, [&] { return counter.load() >= least ? Look::kDone : Look::kIdle; },
      [&](int r) { return r == peer && counter.load() < least; }, deadline());
  waited_ += Clock::now() - start;
}

// Until all ranks of this stage have come as far in this step.
void Pipeline::AwaitStage(std::atomic<uint64_t> Member::*counter, const std::string& operation) {
  group_->Wake();
  for (int pipeline = 0; pipeline < place_.pipelines; ++pipeline) {
    const int peer = RankOf(place_.stage, pipeline);
    Await(members_[peer].*counter, turn_ + 1, peer, operation);
  }
}

void Pipeline::Finish() { group_->Barrier("finishing", deadline()); }

void Pipeline::Abort() noexcept {
  if (group_ != nullptr) group_->Abort();
}

}  // namespace lockstep::trainer::strategy
