#pragma once

#include <memory>
#include <utility>

#include "trainer/backend/cuda/current_device.h"
#include "trainer/backend/device_backend.h"
#include "trainer/backend/kernels.h"
#include "trainer/backend/layer_kernels.h"

// The kernels of a backend, with its device made the current one first: a process may have layers on several
// devices, and calls them in turn.
namespace lockstep::trainer::cuda {

class ProductOnDevice final : public ProductKernel {
 public:
  ProductOnDevice(int ordinal, std::unique_ptr<ProductKernel> kernel)
      : ordinal_(ordinal), kernel_(std::move(kernel)) {}
  ~ProductOnDevice() override { LOCKSTEP_CUDA_NOTHROW(cudaSetDevice(ordinal_)); }

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
  std::unique_ptr<ProductKernel> kernel_;
};

class LossOnDevice final : public LossKernel {
 public:
  LossOnDevice(int ordinal, std::unique_ptr<LossKernel> kernel)
      : ordinal_(ordinal), kernel_(std::move(kernel)) {}
  ~LossOnDevice() override { LOCKSTEP_CUDA_NOTHROW(cudaSetDevice(ordinal_)); }

  void Compute(int64_t n, const float* y, const void* labels, float scale, void* dy, LossSums* sums,
               int64_t before) override {
    UseDevice(ordinal_);
    kernel_->Compute(n, y, labels, scale, dy, sums, before);
  }

 private:
  int ordinal_;
  std::unique_ptr<LossKernel> kernel_;
};

class FunctionOnDevice final : public FunctionKernel {
 public:
  FunctionOnDevice(int ordinal, std::unique_ptr<FunctionKernel> kernel)
      : ordinal_(ordinal), kernel_(std::move(kernel)) {}
  ~FunctionOnDevice() override { LOCKSTEP_CUDA_NOTHROW(cudaSetDevice(ordinal_)); }

  size_t saved_bytes(int64_t n) const override { return kernel_->saved_bytes(n); }
  void Forward(int64_t n, const float* x, float* y, void* saved) override {
    UseDevice(ordinal_);
    kernel_->Forward(n, x, y, saved);
  }
  void Backward(int64_t n, const float* x, const float* y, const void* saved, float* dy, float* dx) override {
    UseDevice(ordinal_);
    kernel_->Backward(n, x, y, saved, dy, dx);
  }

 private:
  int ordinal_;
  std::unique_ptr<FunctionKernel> kernel_;
};

class BatchNormalizationOnDevice final : public BatchNormalizationKernel {
 public:
  BatchNormalizationOnDevice(int ordinal, std::unique_ptr<BatchNormalizationKernel> kernel)
      : ordinal_(ordinal), kernel_(std::move(kernel)) {}
  ~BatchNormalizationOnDevice() override { LOCKSTEP_CUDA_NOTHROW(cudaSetDevice(ordinal_)); }

  void Bind(const Variables& variables) override { kernel_->Bind(variables); }
  void ExportState(float* mean, float* variance) const override {
    UseDevice(ordinal_);
    kernel_->ExportState(mean, variance);
  }
  void ImportMean(const float* mean) override {
    UseDevice(ordinal_);
    kernel_->ImportMean(mean);
  }
  void ImportVariance(const float* variance) override {
    UseDevice(ordinal_);
    kernel_->ImportVariance(variance);
  }
  size_t saved_bytes() const override { return kernel_->saved_bytes(); }
  void Forward(int64_t n, const float* x, float* y, void* saved, bool training,
               const SumOverReplicas& sum) override {
    UseDevice(ordinal_);
    kernel_->Forward(n, x, y, saved, training, sum);
  }
  void Backward(int64_t n, const float* x, const float* y, const void* saved, const float* dy, float* dx,
                const SumOverReplicas& sum) override {
    UseDevice(ordinal_);
    kernel_->Backward(n, x, y, saved, dy, dx, sum);
  }

 private:
  int ordinal_;
  std::unique_ptr<BatchNormalizationKernel> kernel_;
};

class RowsOnDevice final : public RowKernel {
 public:
  RowsOnDevice(int ordinal, std::unique_ptr<RowKernel> kernel)
      : ordinal_(ordinal), kernel_(std::move(kernel)) {}
  ~RowsOnDevice() override { LOCKSTEP_CUDA_NOTHROW(cudaSetDevice(ordinal_)); }

  void Bind(const Variables& variables) override { kernel_->Bind(variables); }
  void Forward(int64_t n, const float* x, float* y) override {
    UseDevice(ordinal_);
    kernel_->Forward(n, x, y);
  }
  void Backward(int64_t n, const float* x, const float* dy, float* dx) override {
    UseDevice(ordinal_);
    kernel_->Backward(n, x, dy, dx);
  }

 private:
  int ordinal_;
  std::unique_ptr<RowKernel> kernel_;
};

class DropoutOnDevice final : public DropoutKernel {
 public:
  DropoutOnDevice(int ordinal, std::unique_ptr<DropoutKernel> kernel)
      : ordinal_(ordinal), kernel_(std::move(kernel)) {}
  ~DropoutOnDevice() override { LOCKSTEP_CUDA_NOTHROW(cudaSetDevice(ordinal_)); }

  size_t saved_bytes(int64_t n) const override { return kernel_->saved_bytes(n); }
  void Forward(int64_t n, const float* x, float* y, void* saved, const DropoutKeys& keys) override {
    UseDevice(ordinal_);
    kernel_->Forward(n, x, y, saved, keys);
  }
  void Backward(int64_t n, const void* saved, const float* dy, float* dx) override {
    UseDevice(ordinal_);
    kernel_->Backward(n, saved, dy, dx);
  }

 private:
  int ordinal_;
  std::unique_ptr<DropoutKernel> kernel_;
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
