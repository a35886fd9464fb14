// What a GPU does, beside its limits; tests/bench/gpu.py runs it and makes a report.
//
//   gpu_bench step mnist|dense [PRECISION] [--no-graphs] [--steps N] [--width N]
//   gpu_bench copy
//   gpu_bench allreduce NCCL|HierarchicalCopy|ReductionToOneDevice     (a rank; under `lockstep run`)
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "tests/bench/gpu/all_reduce.h"
#include "tests/bench/gpu/training_step.h"

namespace {

int Usage() {
  std::fputs(
      "usage: gpu_bench step mnist|dense [PRECISION] [--no-graphs] [--steps N] [--width N]\n"
      "       gpu_bench copy\n"
      "       gpu_bench allreduce NCCL|HierarchicalCopy|ReductionToOneDevice\n",
      stderr);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::bench;  // NOLINT(google-build-using-namespace)
  if (argc < 2) return Usage();
  try {
    if (argc == 2 && std::strcmp(argv[1], "copy") == 0) {
      MeasureCopies();
      return 0;
    }
    if (argc < 3) return Usage();
    if (std::strcmp(argv[1], "allreduce") == 0) {
      MeasureAllReduce(argv[2]);
      return 0;
    }
    if (std::strcmp(argv[1], "step") != 0) return Usage();
    StepOptions options{.job = argv[2]};
    if (options.job == "dense") {
      options.precision = "BFloat16";
      options.batch = 8192;
      options.steps = 20;
    } else if (options.job != "mnist") {
      return Usage();
    }
    for (int i = 3; i < argc; ++i) {
      const bool has_value = i + 1 < argc;
      if (std::strcmp(argv[i], "--no-graphs") == 0) {
        options.graphs = false;
      } else if (std::strcmp(argv[i], "--steps") == 0 && has_value) {
        options.steps = std::atoll(argv[++i]);
      } else if (std::strcmp(argv[i], "--width") == 0 && has_value) {
        options.width = std::atoll(argv[++i]);
      } else if (argv[i][0] != '-') {
        options.precision = argv[i];
      } else {
        return Usage();
      }
    }
    MeasureSteps(options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_bench: %s\n", error.what());
    return 1;
  }
}
