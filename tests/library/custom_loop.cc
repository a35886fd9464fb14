#include <cstdio>
#include <vector>

#include "trainer/backend/factory.h"
#include "trainer/data/sampler.h"
#include "trainer/error.h"
#include "trainer/event_writer.h"
#include "trainer/process_environment.h"
#include "trainer/shared_dataset.h"

using namespace lockstep::trainer;

void Train() {
  // One replica a process: `lockstep run` says which this is, and where it meets the others.
  const ProcessEnvironment here = ReadProcessEnvironment();
  const strategy::World& world = here.world;
  const auto store = ConnectStore(here);
  const SharedDataset digits({.samples = 12'800, .test_samples = 2'000}, world, store.get(), kMeetingTimeout);
  const data::DatasetView& data = digits.view();
  const data::Range test = data::ShardOf(data.test(), world.rank, world.size);

  // The scope: the strategy keeps the variables of model and optimizer the same everywhere.
  const auto backend = MakeBackend({.threads = here.threads});
  Model model({.layers = {{.units = 128, .activation = Activation::kRelu}, {.units = 10}}},
              {.sample = data.sample_shape(), .max_local_batch = data.test().count}, *backend);
  const auto adam = MakeOptimizer({.kind = OptimizerKind::kAdam, .learning_rate = 0.001}, *backend);
  const auto strategy =
      strategy::MakeStrategy({.world = world, .store = store.get(), .reach = here.store_address});
  strategy->Setup(model, *adam, /*seed=*/1);

  EventWriter events;
  data::Sampler sampler({.samples = data.training().count, .batch_size = 64, .seed = 1});
  std::vector<float> inputs(static_cast<size_t>(data.test().count * data.features()));
  std::vector<int32_t> labels(static_cast<size_t>(data.test().count));
  for (data::Position at; at.epoch < 2; at = sampler.Next(at)) {
    const auto mine = sampler.Shard(at, world.rank, world.size);
    data.Gather(mine, inputs.data());
    data.GatherLabels(mine, labels.data());
    // A replica's step: its gradients, their sum over all replicas, the update.
    const auto step = strategy->TrainStep(
        {inputs.data(), labels.data(), std::ssize(mine), sampler.BatchAt(at).count, at.epoch, mine});
    events.WriteStep({.step = strategy->step(), .samples = step.samples, .loss = step.loss});
    if (step.stop) break;
  }

  data.Gather(test, inputs.data());
  data.GatherLabels(test, labels.data());
  const LossResult mine = model.Evaluate(inputs.data(), labels.data(), test.count);
  const strategy::Totals all = strategy->Sum({mine.loss_sum, mine.correct, test.count});
  if (world.rank == 0) std::printf("%ld of %ld right\n", all.correct, all.samples);
  strategy->Finish();
}

int main() try { Train(); } catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return error.exit_code();  // says whether the launcher is to start all of them again
}
