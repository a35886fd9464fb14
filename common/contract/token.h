#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/status.h"

namespace lockstep::contract {

// The job's secret: 256 random bits. Who knows it may speak with the job's store. It lives in a file of mode
// 0600 (64 hexadecimal digits and a newline) and in the memory of the job's processes; never in arguments,
// environment or logs. A value; every copy wipes itself when it dies.
class Token {
 public:
  static constexpr size_t kBytes = 32;

  // A new one, in memory only.
  static Token Random();

  // A new one, in the new file `path`. kFailedPrecondition if something of that name is there; on any failure
  // no file is left.
  static Result<Token> Create(const std::string& path);

  // kPermissionDenied if the file belongs to neither this user nor root, or if others can read or write it
  // (the message says which mode is right); kInvalidArgument if it holds no token.
  static Result<Token> Read(const std::string& path);

  Token(const Token&) = default;
  Token& operator=(const Token&) = default;
  ~Token();

  std::string_view bytes() const;

 private:
  Token() = default;

  std::array<uint8_t, kBytes> bytes_{};
};

// Takes the same time wherever the difference is. (Lengths are not secret.)
bool ConstantTimeEqual(std::string_view a, std::string_view b);

// From the kernel's generator.
std::string RandomBytes(size_t count);

}  // namespace lockstep::contract
