#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "launcher/placement/assign.h"
#include "launcher/placement/environment_file.h"

namespace lockstep::placement {

// Whether a variable is another launcher's (or a Lockstep's above this one), so that it would mislead a
// process.
bool IsStale(std::string_view name);

// One process's environment. Who wins, from the strongest: Set, spec.program.env, spec.program.envFiles, the
// launcher's inherited environment (less what is stale), SetDefault.
class EnvironmentBuilder {
 public:
  // `from_files`: VariablesOf(), each variable once.
  EnvironmentBuilder(const Environment& inherited, const Variables& from_manifest,
                     const std::vector<FileVariable>& from_files);

  // The launcher's own: the manifest may not set it.
  void Set(std::string_view name, std::string value);
  // What a user may know better.
  void SetDefault(std::string_view name, std::string value);
  // Takes an inherited variable away.
  void Remove(std::string_view name);
  // The user has set it: in the manifest, or in the environment of the launcher.
  bool SetByUser(std::string_view name) const;

  // Fills in the plan's environment, changed, from_manifest and from_files. kInvalidArgument when the user
  // sets what is the launcher's, the same name twice, or something that is no name; `field`
  // ("spec.program.environment") begins the message, or the file and its line.
  Status Build(const std::string& field, ProcessPlan& plan) const;

 private:
  Status CheckManifest(const std::string& field) const;
  // That the user may set it; `where` begins the message.
  Status CheckName(const std::string& where, std::string_view name) const;

  Environment inherited_;
  Variables from_manifest_;
  std::vector<FileVariable> from_files_;        // less what the manifest sets
  Variables set_;                               // Set and SetDefault, in order
  std::set<std::string, std::less<>> own_;      // names given to Set
  std::set<std::string, std::less<>> removed_;  // names given to Remove
};

}  // namespace lockstep::placement
