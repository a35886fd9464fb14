#include "trainer/matmul_demo.h"

#include <array>
#include <cstdint>
#include <cstdio>

#include "common/contract/exit_codes.h"
#include "trainer/devices.h"
#include "trainer/error.h"
#include "trainer/tensor/buffer.h"

namespace lockstep::trainer {
namespace {

constexpr const char* kUsage =
    "usage: lockstep-trainer matmul-demo [--device NAME]... [--type Float32|Int32] [--soft-placement]\n"
    "                                    [--log-placement]\n"
    "Multiplies [[1 2 3] [4 5 6]] by [[1 2] [3 4] [5 6]] once on each device (GPU:0, /gpu:1, CPU:0 ...; "
    "default:\n"
    "GPU:0 where there is one, else CPU:0) and sums the products on the CPU.\n";

struct Request {
  std::vector<std::string> devices;
  DataType type = DataType::kFloat32;
  bool soft_placement = false;
  bool log_placement = false;
};

[[noreturn]] void Fail(const std::string& what) {
  throw Error(contract::kExitUsage, "BadArguments", "matmul-demo: " + what);
}

Request Read(const std::vector<std::string>& arguments) {
  Request request;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const auto value = [&]() -> const std::string& {
      if (i + 1 == arguments.size()) Fail(argument + " needs a value");
      return arguments[++i];
    };
    if (argument == "--device") {
      request.devices.push_back(value());
    } else if (argument == "--type") {
      const std::string& type = value();
      if (type != "Float32" && type != "Int32")
        Fail("--type is \"" + type + "\"; Float32 or Int32 would be right");
      request.type = type == "Int32" ? DataType::kInt32 : DataType::kFloat32;
    } else if (argument == "--soft-placement") {
      request.soft_placement = true;
    } else if (argument == "--log-placement") {
      request.log_placement = true;
    } else {
      Fail("\"" + argument + "\" is not an argument; --help lists them");
    }
  }
  return request;
}

template <typename T>
void Run(Request request, Devices& devices) {
  constexpr std::array<T, 6> a = {1, 2, 3, 4, 5, 6}, b = a;  // [2, 3] and [3, 2]
  if (request.devices.empty()) {
    request.devices.push_back(devices.Names().size() > 1 ? "GPU:0" : "CPU:0");
  }
  std::array<T, 4> sum{};
  for (const std::string& name : request.devices) {
    Backend& backend = devices.For(Op::kMatMul, request.type, name);
    if (request.log_placement) {
      std::printf("MatMul(%s): %s (%s)\n", std::string(DataTypeName(request.type)).c_str(),
                  devices.NameOf(backend).c_str(), backend.description().c_str());
    }
    const Buffer left(backend.allocator(), sizeof a), right(backend.allocator(), sizeof b),
        product(backend.allocator(), sizeof sum);
    backend.Upload(left.data(), a.data(), sizeof a);
    backend.Upload(right.data(), b.data(), sizeof b);
    backend.MatMul(request.type, 2, 2, 3, left.data(), right.data(), product.data());
    std::array<T, 4> fetched;
    backend.Download(fetched.data(), product.data(), sizeof fetched);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += fetched[i];
  }
  if (request.log_placement) std::printf("Add(%s): CPU:0\n", std::string(DataTypeName(request.type)).c_str());
  std::printf("[[%g %g] [%g %g]]\n", static_cast<double>(sum[0]), static_cast<double>(sum[1]),
              static_cast<double>(sum[2]), static_cast<double>(sum[3]));
}

}  // namespace

int MatmulDemo(const std::vector<std::string>& arguments) {
  if (!arguments.empty() && arguments.front() == "--help") {
    std::fputs(kUsage, stdout);
    return contract::kExitDone;
  }
  const Request request = Read(arguments);
  Devices devices({.soft_placement = request.soft_placement});
  if (request.type == DataType::kInt32) {
    Run<int32_t>(request, devices);
  } else {
    Run<float>(request, devices);
  }
  return contract::kExitDone;
}

}  // namespace lockstep::trainer
