#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

// Messages of the programs themselves, to standard error, one line each. (The output of ranks goes another
// way: launcher/process/.) Safe from every thread.
namespace lockstep::log {

enum class Level { kDebug, kInfo, kWarning, kError };

// As people read them, or each line an object for a collector of logs.
enum class Format { kText, kJson };

// Before the first message: the lowest level shown, and a word in front of every line ("lockstep", "rank 3").
void Initialize(Level lowest, std::string_view name);

// Before any thread that writes; text unless it is said.
void SetFormat(Format format);
Format format();

void Debug(std::string_view message);
void Info(std::string_view message);
void Warning(std::string_view message);
void Error(std::string_view message);

// What a line says beside its message; a number that is none comes out as null.
using Fields = std::vector<std::pair<std::string_view, std::variant<int64_t, double, std::string>>>;

// For those who write their lines themselves, without newline. With kJson:
//   {"time":"2026-01-31T12:00:00.123Z","level":"info","source":"lockstep","message":"…"} and the fields,
// and with kText "lockstep: …". Bytes that are no UTF-8 come out as U+FFFD in JSON.
std::string Line(Level level, std::string_view source, std::string_view message);
std::string JsonLine(Level level, std::string_view source, std::string_view message,
                     const Fields& fields = {});
// Line() with its newline in one write(2) and without stdio, for processes that fork and share the stream.
void WriteLine(Level level, std::string_view source, std::string_view message);

}  // namespace lockstep::log
