// Reads every hostile manifest as `lockstep validate` would and prints the slowest and the peak of memory;
// exits with 1 beyond what the reader promises: 100 ms each, 64 MiB.

#include <sys/resource.h>

#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>

#include "launcher/spec/manifest.h"
#include "tests/paths.h"
#include "tests/unit/spec/hostile.h"

namespace {

constexpr double kMostMilliseconds = 100;
constexpr double kMostMebibytes = 64;

// Of the whole program.
double PeakMebibytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// The reader waits for nothing, so this is the time it takes, and other programs do not count.
double CpuMilliseconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

double Milliseconds(const std::string& text, bool* failed) {
  const double begin = CpuMilliseconds();
  const auto manifests = lockstep::spec::ReadManifests(text, "hostile.yaml");
  *failed = !manifests.errors.empty();
  return CpuMilliseconds() - begin;
}

}  // namespace

int main(int argc, char** argv) {
  const char* file =
      argc > 1 ? argv[1] : LOCKSTEP_SOURCE_DIR "/tests/testdata/manifests/good/all-trainer.yaml";
  std::ifstream stream(file, std::ios::binary);
  const std::string example(std::istreambuf_iterator<char>(stream), {});
  if (example.empty()) {
    std::fprintf(stderr, "%s: cannot be read\n", file);
    return 1;
  }
  double slowest = 0;
  std::string slowest_name;
  int count = 0;
  int accepted = 0;
  int wrongly = 0;
  lockstep::spec::testing::VisitHostileManifests(example, [&](const auto& hostile) {
    bool failed = false;
    const double spent = Milliseconds(hostile.text, &failed);
    ++count;
    accepted += failed ? 0 : 1;
    wrongly += !failed && hostile.must_fail ? 1 : 0;
    if (spent > slowest) {
      slowest = spent;
      slowest_name = hostile.name;
    }
  });
  const double peak = PeakMebibytes();
  std::printf("%d hostile manifests, %d of them valid, %d wrongly accepted\n", count, accepted, wrongly);
  std::printf("slowest: %.1f ms (%s); at most %.0f\n", slowest, slowest_name.c_str(), kMostMilliseconds);
  std::printf("peak of memory: %.1f MiB; at most %.0f\n", peak, kMostMebibytes);
  return slowest <= kMostMilliseconds && peak <= kMostMebibytes && wrongly == 0 ? 0 : 1;
}
