#pragma once

#include <string>

namespace lockstep::spec {

// The CustomResourceDefinition of TrainingJob as YAML: a structural schema of the fields, ranges, patterns,
// enumerations and defaults of the table of fields (fields.h), the rules of validate.h in CEL (crd_rules.h),
// the status, the printer columns. What `lockstep schema --crd` prints, and what manifests/crd/ holds.
//
// What an API server cannot say as the reader does:
//  - A rule that needs the names that layers get by default: spec.placement's.
//  - YAML that kubectl reads another way than YAML 1.2 (`yes`, `010`) is refused by the reader only.
std::string CustomResourceDefinition();

}  // namespace lockstep::spec
