#pragma once

#include <string>
#include <string_view>

// Messages of the programs themselves, to standard error, one line each. (The output of ranks goes another
// way: launcher/process/.) Safe from every thread.
namespace lockstep::log {

enum class Level { kDebug, kInfo, kWarning, kError };

// Before the first message: the lowest level shown, and a word in front of every line ("lockstep", "rank 3").
void Initialize(Level lowest, std::string_view name);

void Debug(std::string_view message);
void Info(std::string_view message);
void Warning(std::string_view message);
void Error(std::string_view message);

}  // namespace lockstep::log
