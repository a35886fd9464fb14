#pragma once

#include <string>
#include <string_view>

namespace lockstep::contract {

// SHA-256 in hexadecimal digits: whether two texts are the same, said in 64 characters.
std::string Digest(std::string_view text);

}  // namespace lockstep::contract
