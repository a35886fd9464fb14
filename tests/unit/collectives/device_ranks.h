#pragma once

#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/collectives/gpus.h"
#include "tests/unit/collectives/ranks.h"
#include "trainer/backend/device_backend.h"
#include "trainer/tensor/buffer.h"

namespace lockstep::testing {

// One rank of a group of GPUs, with some registered memory.
class DeviceRank {
 public:
  static constexpr size_t kFloats = 110'000;
  struct Options {
    trainer::collectives::DeviceOps ops;
    int ranks;
    int gpus;                                                     // that they are on, in turn
    trainer::collectives::InProcessSegments* segments = nullptr;  // when ranks are threads
    std::chrono::milliseconds patience{30'000};
    size_t floats = kFloats;
  };

  DeviceRank(const Options& options, contract::Store& store, int rank)
      : options_(options),
        rank_(rank),
        backend_(AllGpus().entry->make_backend({.ordinal = rank % options.gpus})),
        memory_(backend_->shareable(), options.floats * sizeof(float)),
        communicator_(AllGpus().communicators->connect({.ops = options.ops,
                                                        .rank = rank,
                                                        .size = options.ranks,
                                                        .local_rank = rank,
                                                        .local_size = options.ranks,
                                                        .shared_devices = options.gpus < options.ranks,
                                                        .store = &store,
                                                        .key = "devices",
                                                        .deadline = In(options.patience),
                                                        .timeout = options.patience,
                                                        .segments = options.segments},
                                                       *backend_)) {
    communicator_->Register(memory_.data(), memory_.bytes(), In(options.patience));
  }

  trainer::collectives::DeviceCommunicator* operator->() { return communicator_.get(); }
  trainer::DeviceBackend& backend() { return *backend_; }
  trainer::Stream stream() { return backend_->compute_stream(); }
  int rank() const { return rank_; }
  int size() const { return options_.ranks; }
  float* data() { return memory_.as<float>(); }

  void Put(const std::vector<float>& values) {
    backend_->Upload(data(), values.data(), values.size() * sizeof(float));
  }
  std::vector<float> Take(size_t count) {
    std::vector<float> values(count);
    backend_->Synchronize();
    backend_->Download(values.data(), data(), count * sizeof(float));
    return values;
  }
  void Finish() {
    backend_->Synchronize();
    communicator_->Finish(In(options_.patience));
  }

  // What rank r brings.
  static std::vector<float> Values(int r, size_t count) {
    std::mt19937 random(static_cast<unsigned>(r + 1));
    std::normal_distribution<float> normal(0, 1);
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    return values;
  }

 private:
  Options options_;
  int rank_;
  std::unique_ptr<trainer::DeviceBackend> backend_;
  trainer::Buffer memory_;
  std::unique_ptr<trainer::collectives::DeviceCommunicator> communicator_;
};

}  // namespace lockstep::testing
