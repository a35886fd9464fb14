#pragma once

#include <string_view>

// The files of page/, as they are; a generated source defines them (CMakeLists.txt).
namespace lockstep::telemetry {

extern const std::string_view kPageCss;
extern const std::string_view kCommonJs;
extern const std::string_view kChartJs;
extern const std::string_view kJobHtml;
extern const std::string_view kJobJs;
extern const std::string_view kJobsHtml;
extern const std::string_view kJobsJs;

}  // namespace lockstep::telemetry
