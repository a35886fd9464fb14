#pragma once

#include <string>

namespace lockstep::spec::testing {

// The tables of docs/manifest.md, from Schema(): one for every mapping, a row for every field.
std::string Reference();

}  // namespace lockstep::spec::testing
