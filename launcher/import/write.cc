#include "launcher/import/write.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "launcher/spec/json.h"
#include "launcher/spec/manifest.h"
#include "launcher/spec/unsupported.h"
#include "launcher/spec/yaml_out.h"

namespace lockstep::importer {

namespace {

using Json = nlohmann::ordered_json;

Json Parse(const spec::TrainingJob& job) { return Json::parse(spec::ToJson(job), nullptr, false); }

// Leaves out of `object` what `defaults` has alike, and mappings of which nothing is left.
void Slim(Json& object, const Json& defaults) {
  for (auto field = object.begin(); field != object.end();) {
    const auto same = defaults.find(field.key());
    if (same != defaults.end() && field.value().is_object() && same->is_object()) Slim(field.value(), *same);
    const bool empty = field.value().is_object() && field.value().empty();
    const bool drop = same != defaults.end() && (empty || field.value() == *same);
    if (drop) {
      field = object.erase(field);
    } else {
      ++field;
    }
  }
}

// A job that has nothing but what it needs.
spec::TrainingJob Bare(bool several_roles) {
  spec::TrainingJob bare;
  bare.name = "bare";
  bare.program = spec::Program{.command = {"bare"}};
  bare.roles.emplace_back();
  if (several_roles) bare.roles.push_back({.name = "ps"});
  return bare;
}

}  // namespace

Written WriteJob(const spec::TrainingJob& job) {
  Written written;
  Json manifest = Parse(job);
  const Json defaults = Parse(Bare(false));
  Slim(manifest["metadata"], defaults["metadata"]);
  if (manifest["spec"].contains("roles")) {
    const Json role = Parse(Bare(true))["spec"]["roles"][0];
    for (Json& each : manifest["spec"]["roles"]) {
      const Json name = each["name"];
      Slim(each, role);
      Json named = {{"name", name}};
      named.update(each);
      each = std::move(named);
    }
  }
  Slim(manifest["spec"], defaults["spec"]);
  written.yaml = spec::ToYaml(manifest);

  const spec::Manifests read = spec::ReadManifests(written.yaml, job.name);
  for (const spec::Diagnostic& error : read.errors) written.broken.push_back({error.path, error.what});
  for (const spec::TrainingJob& valid : read.jobs) {
    for (const spec::Finding& finding : spec::UnsupportedFields(valid)) {
      // (Of this one it speaks of a machine only.)
      if (finding.path != "spec.suspend") written.not_built.push_back({finding.path, finding.what});
    }
  }
  return written;
}

}  // namespace lockstep::importer
