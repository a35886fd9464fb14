#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/unique_fd.h"

namespace lockstep::trainer::data {

// A regular file to read. Failures are BadData that name it.
class InputFile {
 public:
  explicit InputFile(const std::string& path);

  const std::string& path() const { return path_; }
  size_t size() const { return size_; }

  // Fills `out` with the bytes from `offset` on; a file that ends before is an error.
  void ReadAt(size_t offset, std::span<std::byte> out) const;
  std::vector<std::byte> ReadAll() const;

  // BadData: "PATH: MESSAGE".
  [[noreturn]] void Fail(const std::string& message) const;

 private:
  std::string path_;
  UniqueFd fd_;
  size_t size_ = 0;
};

bool IsThere(const std::string& path);

}  // namespace lockstep::trainer::data
