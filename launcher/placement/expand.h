#pragma once

#include <string>
#include <string_view>

#include "launcher/placement/assign.h"

namespace lockstep::placement {

// `text` with the values of `variables` for $(NAME), as Kubernetes does it in a container's command: what is
// not among them stays as it is, a shell's $(date) say, and of $$(NAME) stays $(NAME). (Kubernetes makes one
// of every other pair of dollars too, which would spoil a shell's $$.)
std::string Expand(std::string_view text, const Environment& variables);

}  // namespace lockstep::placement
