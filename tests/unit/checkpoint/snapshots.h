#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/unique_fd.h"
#include "tests/support/temporary_folder.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/directory.h"

namespace lockstep::trainer::checkpoint {

inline Signature SomeSignature() {
  return {.variables = {{.name = "dense/kernel", .shape = {4, 3}}, {.name = "dense/bias", .shape = {3}}},
          .optimizer = "Adam",
          .slots = {"m", "v"},
          .precision = "Float32",
          .seed = 7,
          .training_samples = 100};
}

// Each step's snapshot is another.
inline Snapshot SomeSnapshot(int64_t step) {
  Snapshot snapshot{.signature = SomeSignature(),
                    .step = step,
                    .epoch = step / 10,
                    .offset = step % 10,
                    .generation = 2,
                    .metadata = "{\"step\":" + std::to_string(step) + "}"};
  for (int i = 0; i < 15; ++i)
    snapshot.parameters.push_back(static_cast<float>(step) + 0.25f * static_cast<float>(i));
  snapshot.slots = {snapshot.parameters, std::vector<float>(15, -1.5f)};
  return snapshot;
}

inline void ExpectSame(const Snapshot& a, const Snapshot& b) {
  EXPECT_EQ(Difference(a.signature, b.signature), "");
  EXPECT_EQ(a.signature.precision, b.signature.precision);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.offset, b.offset);
  EXPECT_EQ(a.generation, b.generation);
  EXPECT_EQ(a.metadata, b.metadata);
  EXPECT_EQ(a.parameters, b.parameters);
  EXPECT_EQ(a.slots, b.slots);
  EXPECT_EQ(a.state, b.state);
}

// A new file each time: to cut a file to nothing and write it again makes some file systems wait for the
// disk.
inline void WriteBytes(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

inline Result<Snapshot> ReadFrom(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return ReadSnapshot(file.get());
}

// Names of a folder's files, in order.
inline std::vector<std::string> NamesIn(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace lockstep::trainer::checkpoint
