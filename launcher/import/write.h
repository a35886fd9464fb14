#pragma once

#include <string>
#include <vector>

#include "launcher/spec/training_job.h"

namespace lockstep::importer {

// A field of the TrainingJob that came out, and what is to be said of it.
struct Remark {
  std::string path;
  std::string what;
  bool operator==(const Remark&) const = default;
};

struct Written {
  std::string yaml;               // without what is the default anyway
  std::vector<Remark> broken;     // rules of `lockstep validate` that it breaks
  std::vector<Remark> not_built;  // what this version knows, and refuses to run
};

Written WriteJob(const spec::TrainingJob& job);

}  // namespace lockstep::importer
