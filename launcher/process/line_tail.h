#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::process {

// The last 20 lines of something, each cut at 4 KiB; so at most 80 KiB.
class LineTail {
 public:
  static constexpr size_t kLines = 20;
  static constexpr size_t kLineBytes = 4096;

  void Add(std::string_view line) { lines_[added_++ % kLines].assign(line.substr(0, kLineBytes)); }

  // Oldest first.
  std::vector<std::string> Lines() const {
    std::vector<std::string> result;
    const size_t first = added_ > kLines ? added_ - kLines : 0;
    for (size_t i = first; i < added_; ++i) result.push_back(lines_[i % kLines]);
    return result;
  }

 private:
  std::array<std::string, kLines> lines_;
  size_t added_ = 0;
};

}  // namespace lockstep::process
