#pragma once

#include <memory>
#include <utility>

#include "trainer/backend/cuda/current_device.h"
#include "trainer/backend/device_backend.h"
#include "trainer/backend/kernels.h"

// The kernels of a backend, with its device made the current one first: a process may have layers on several
// devices, and calls them in turn.
namespace lockstep::trainer::cuda {

class DenseOnDevice final : public DenseKernel {
 public:
  DenseOnDevice(int ordinal, std::unique_ptr<DenseKernel> kernel)
      : ordinal_(ordinal), kernel_(std::move(kernel)) {}
  ~DenseOnDevice() override { LOCKSTEP_CUDA_NOTHROW(cudaSetDevice(ordinal_)); }

  int64_t stored_size() const override { return kernel_->stored_size(); }
  void FromCanonical(const float* canonical, float* stored) const override {
    kernel_->FromCanonical(canonical, stored);
  }
  void ToCanonical(const float* stored, float* canonical) const override {
    kernel_->ToCanonical(stored, canonical);
  }
  void Bind(const Variables& variables) override {
    UseDevice(ordinal_);
    kernel_->Bind(variables);
  }
  void KernelChanged(int64_t begin, int64_t end) override {
    UseDevice(ordinal_);
    kernel_->KernelChanged(begin, end);
  }
  void BiasChanged(int64_t begin, int64_t end) override {
    UseDevice(ordinal_);
    kernel_->BiasChanged(begin, end);
  }
  Rounded rounded() const override { return kernel_->rounded(); }
  void Forward(int64_t n, const void* x, void* y) override {
    UseDevice(ordinal_);
    kernel_->Forward(n, x, y);
  }
  void Backward(int64_t n, const void* x, const void* y, void* dy, void* dx) override {
    UseDevice(ordinal_);
    kernel_->Backward(n, x, y, dy, dx);
  }

 private:
  int ordinal_;
  std::unique_ptr<DenseKernel> kernel_;
};

class LossOnDevice final : public LossKernel {
 public:
  LossOnDevice(int ordinal, std::unique_ptr<LossKernel> kernel)
      : ordinal_(ordinal), kernel_(std::move(kernel)) {}
  ~LossOnDevice() override { LOCKSTEP_CUDA_NOTHROW(cudaSetDevice(ordinal_)); }

  void Compute(int64_t n, const float* y, const void* labels, float scale, void* dy,
               LossSums* sums) override {
    UseDevice(ordinal_);
    kernel_->Compute(n, y, labels, scale, dy, sums);
  }

 private:
  int ordinal_;
  std::unique_ptr<LossKernel> kernel_;
};

class DatasetOnDevice final : public DeviceDataset {
 public:
  DatasetOnDevice(int ordinal, std::unique_ptr<DeviceDataset> dataset)
      : ordinal_(ordinal), dataset_(std::move(dataset)) {}
  ~DatasetOnDevice() override { LOCKSTEP_CUDA_NOTHROW(cudaSetDevice(ordinal_)); }

  bool resident() const override { return dataset_->resident(); }
  Loaded Load(std::span<const uint32_t> samples) override {
    UseDevice(ordinal_);
    return dataset_->Load(samples);
  }

 private:
  int ordinal_;
  std::unique_ptr<DeviceDataset> dataset_;
};

}  // namespace lockstep::trainer::cuda
