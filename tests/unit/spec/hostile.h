#pragma once

#include <functional>
#include <string>

namespace lockstep::spec::testing {

struct HostileManifest {
  std::string name;
  std::string text;
  bool must_fail = true;  // false: a random change of a good manifest, which may still be good
};

// Shows more than 200 manifests that are broken, oversized or malicious; the same ones every time, and one at
// a time, so that the memory measured is the reader's. `example` is a good manifest to cut and to mutate.
void VisitHostileManifests(const std::string& example,
                           const std::function<void(const HostileManifest&)>& visit);

}  // namespace lockstep::spec::testing
