#include "launcher/placement/role_view.h"

#include <algorithm>
#include <utility>

namespace lockstep::placement {

Result<RoleView> FindRole(const spec::TrainingJob& job, const std::string& name) {
  for (size_t i = 0; i < job.roles.size(); ++i) {
    const spec::Role& role = job.roles[i];
    if (role.name != name) continue;
    const bool alone = job.roles.size() == 1 && name == "worker";
    RoleView view{.role = &role, .field = alone ? "spec." : "spec.roles[" + std::to_string(i) + "]."};
    view.spreads_layers =
        !job.layer_placement.empty() || (job.strategy.type == spec::StrategyType::kOneDevice &&
                                         job.strategy.variables != spec::VariablePlacement::kAuto);
    if (role.program) {
      view.program = &*role.program;
    } else if (job.program) {
      view.program = &*job.program;
    } else if (!job.trainer) {
      return InvalidArgument(view.field + "program: role " + name + " has neither a program nor a trainer");
    }
    return view;
  }
  std::string known;
  for (const spec::Role& role : job.roles) known += (known.empty() ? "" : ", ") + role.name;
  return InvalidArgument("spec.roles: there is no role \"" + name + "\"; there is " + known);
}

void AddNotice(std::vector<std::string>& notices, std::string notice) {
  if (std::find(notices.begin(), notices.end(), notice) == notices.end())
    notices.push_back(std::move(notice));
}

std::string FrameworkName(spec::Framework framework) {
  switch (framework) {
    case spec::Framework::kNone:
      return "a plain program";
    case spec::Framework::kTensorFlow:
      return "TensorFlow";
    case spec::Framework::kPyTorch:
      return "PyTorch";
    case spec::Framework::kJax:
      return "JAX";
    case spec::Framework::kHorovod:
      return "Horovod";
    case spec::Framework::kMpi:
      return "MPI";
  }
  return "";
}

}  // namespace lockstep::placement
