#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

// Numbers and times as people read them, the same on the console and on the page.
namespace lockstep::telemetry {

std::string Grouped(int64_t value);          // "90,321"
std::string FormatDuration(double seconds);  // "41 s", "3 min 05 s", "2 h 10 min", "3 d 04 h"
std::string FormatBytes(int64_t bytes);      // "512 B", "1.5 MiB"
std::string FormatDecimals(double value, int decimals);
std::string FormatLoss(double loss);  // four decimals, "1.23e-05" or "4.56e+07" where they say too little

// Lines of columns as wide as their longest cell, two blanks between them; no column where only the heading
// has a text. Each row has as many cells as the heading.
std::vector<std::string> FormatTable(const std::vector<std::string>& heading,
                                     const std::vector<std::vector<std::string>>& rows);

// Without control characters (terminal escapes among them), which become '?'.
std::string Printable(const std::string& text);

}  // namespace lockstep::telemetry
