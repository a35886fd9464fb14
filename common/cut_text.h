#pragma once

#include <string>

namespace lockstep {

// The first `bytes` of UTF-8 text, never half a character, with an ellipsis where something is left out.
std::string CutText(std::string text, size_t bytes);

}  // namespace lockstep
