#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

// Times as RFC 3339 has them, in UTC: in files, in documents, in Kubernetes' API.
namespace lockstep {

using WallTime = std::chrono::sys_time<std::chrono::microseconds>;

enum class TimeParts { kSeconds, kMilliseconds, kMicroseconds };

// "2026-01-31T12:00:00Z" (Kubernetes' metav1.Time), with milliseconds "2026-01-31T12:00:00.000Z", with
// microseconds "2026-01-31T12:00:00.000000Z" (metav1.MicroTime); what is smaller is cut off.
std::string FormatTime(std::chrono::system_clock::time_point time, TimeParts parts = TimeParts::kSeconds);
// With or without parts of a second, "Z" or an offset.
std::optional<WallTime> ParseTime(std::string_view text);

}  // namespace lockstep
