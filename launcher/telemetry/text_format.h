#pragma once

#include <cstdint>
#include <string>

// Numbers and times as people read them, the same on the console and on the page.
namespace lockstep::telemetry {

std::string Grouped(int64_t value);          // "90,321"
std::string FormatDuration(double seconds);  // "41 s", "3 min 05 s", "2 h 10 min", "3 d 04 h"
std::string FormatBytes(int64_t bytes);      // "512 B", "1.5 MiB"
std::string FormatDecimals(double value, int decimals);
std::string FormatLoss(double loss);  // four decimals, "1.23e-05" or "4.56e+07" where they say too little

// Without control characters (terminal escapes among them), which become '?'.
std::string Printable(const std::string& text);

}  // namespace lockstep::telemetry
