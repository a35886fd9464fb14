#pragma once

#include <string>
#include <vector>

#include "launcher/spec/fields_job.h"

// The rules of rules_*.cc in CEL, by the struct whose schema carries them. `self` is that struct; an API
// server bounds what a rule may cost, so lists that rules compare with themselves are short
// (Facets::max_items).
namespace lockstep::spec {

struct CelRule {
  std::string rule;
  std::string message;
};
using CelRules = std::vector<CelRule>;

// Of any other struct: none.
template <class T>
CelRules RulesOf(const T*) {
  return {};
}
template <>
CelRules RulesOf(const Devices*);
template <>
CelRules RulesOf(const DeviceMemory*);
template <>
CelRules RulesOf(const Role*);
template <>
CelRules RulesOf(const Program*);
template <>
CelRules RulesOf(const std::pair<std::string, std::string>*);
template <>
CelRules RulesOf(const Strategy*);
template <>
CelRules RulesOf(const Contrast*);
template <>
CelRules RulesOf(const Normalization*);
template <>
CelRules RulesOf(const Data*);
template <>
CelRules RulesOf(const InnerLayer*);
template <>
CelRules RulesOf(const Layer*);
template <>
CelRules RulesOf(const Model*);
template <>
CelRules RulesOf(const Schedule*);
template <>
CelRules RulesOf(const Optimizer*);
template <>
CelRules RulesOf(const Trainer*);
template <>
CelRules RulesOf(const ExitCodeRule*);
template <>
CelRules RulesOf(const RunPolicy*);
template <>
CelRules RulesOf(const Spec*);

}  // namespace lockstep::spec
