#include "launcher/doctor/doctor.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace lockstep::doctor {

namespace {

std::string_view LevelName(Level level) {
  switch (level) {
    case Level::kFine:
      return "Fine";
    case Level::kWarning:
      return "Warning";
    case Level::kFault:
      return "Fault";
  }
  return "Fault";
}

}  // namespace

std::vector<Finding> Examine(const Options& options) {
  std::vector<Finding> findings = ExamineMachine(options.root);
  for (auto* part : {&ExamineNetwork, &ExamineGpus}) {
    for (Finding& finding : part(options)) findings.push_back(std::move(finding));
  }
  return findings;
}

std::string FindingsText(const std::vector<Finding>& findings) {
  size_t width = 0;
  for (const Finding& finding : findings) width = std::max(width, finding.about.size());
  std::string text;
  for (const Finding& finding : findings) {
    std::string level(finding.level == Level::kFine ? "" : LevelName(finding.level));
    level.resize(LevelName(Level::kWarning).size(), ' ');
    text += level + "  " + finding.about + std::string(width - finding.about.size() + 2, ' ') + finding.what +
            "\n";
    if (!finding.fix.empty()) text += std::string(level.size() + width + 4, ' ') + "-> " + finding.fix + "\n";
  }
  return text;
}

std::string FindingsJson(const std::vector<Finding>& findings) {
  auto json = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    nlohmann::ordered_json entry = {
        {"level", LevelName(finding.level)}, {"about", finding.about}, {"what", finding.what}};
    if (!finding.fix.empty()) entry["fix"] = finding.fix;
    json.push_back(std::move(entry));
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::doctor
