#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

// The API's times.
namespace lockstep::kube {

using WallTime = std::chrono::sys_time<std::chrono::microseconds>;

// "2026-01-31T12:00:00Z" (metav1.Time); parts of a second are cut off.
std::string FormatTime(WallTime time);
// "2026-01-31T12:00:00.000000Z" (metav1.MicroTime).
std::string FormatMicroTime(WallTime time);
// RFC 3339, with or without parts of a second, "Z" or an offset.
std::optional<WallTime> ParseTime(std::string_view text);

}  // namespace lockstep::kube
