#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "trainer/backend/backend.h"
#include "trainer/backend/cuda_plugin.h"

// The numeric tests run the same body on each backend. Their sources make two programs: one for the processor
// and for CUDA's sources on the stand-in (tests/support/cuda_on_host), and one, of label gpu, for a real GPU.
namespace lockstep::trainer {

enum class TestBackend { kCpu, kCudaOnHost, kCuda };

// Those of this program.
std::vector<TestBackend> TestBackends();
// Those of them that are a DeviceBackend.
std::vector<TestBackend> TestDevices();
std::string TestBackendName(TestBackend backend);
// Null where there is none, and then `why` says so.
std::unique_ptr<Backend> MakeTestBackend(TestBackend backend, std::string* why);
// The same for one of the two on CUDA.
std::unique_ptr<DeviceBackend> MakeTestDevice(TestBackend backend, const DeviceOptions& options,
                                              std::string* why);

// Tests over {backend} × cases: GetParam() is a tuple of both.
template <typename Case>
class BackendTest : public testing::TestWithParam<std::tuple<TestBackend, Case>> {
 protected:
  void SetUp() override {
    std::string why;
    backend_ = MakeTestBackend(std::get<0>(this->GetParam()), &why);
    if (backend_ == nullptr) GTEST_SKIP() << why;
  }
  Backend& backend() { return *backend_; }
  const Case& test_case() const { return std::get<1>(this->GetParam()); }

 private:
  std::unique_ptr<Backend> backend_;
};

// For tests without cases of their own.
struct AnyCase {};
inline std::string NameOf(const AnyCase&) { return ""; }

template <typename Case>
std::string TestName(const testing::TestParamInfo<std::tuple<TestBackend, Case>>& info) {
  const std::string name = NameOf(std::get<1>(info.param));
  return TestBackendName(std::get<0>(info.param)) + (name.empty() ? "" : "_" + name);
}

// Values in a backend's memory.
template <typename T>
class OnBackend {
 public:
  OnBackend(Backend& backend, const std::vector<T>& values)
      : backend_(backend), memory_(backend.allocator(), values.size() * sizeof(T)) {
    backend.Upload(memory_.data(), values.data(), memory_.bytes());
  }
  OnBackend(Backend& backend, size_t count) : OnBackend(backend, std::vector<T>(count)) {}

  T* data() const { return memory_.as<T>(); }
  std::vector<T> Fetch() const {
    std::vector<T> values(memory_.bytes() / sizeof(T));
    backend_.Download(values.data(), memory_.data(), memory_.bytes());
    return values;
  }

 private:
  Backend& backend_;
  Buffer memory_;
};

}  // namespace lockstep::trainer
