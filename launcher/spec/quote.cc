#include "launcher/spec/quote.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <vector>

#include "common/lower_case.h"

namespace lockstep::spec {

namespace {

constexpr size_t kShown = 60;
constexpr size_t kLongestWord = 64;

// Damerau's edit distance (adjacent letters swapped count as one edit), in half edits: another case is half
// of one. (Damerau, "A technique for computer detection and correction of spelling errors", CACM 7(3), 1964.)
int HalfEdits(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> cost(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = static_cast<int>(2 * (i + j));
        continue;
      }
      const int differs = a[i - 1] == b[j - 1] ? 0 : LowerCase(a[i - 1]) == LowerCase(b[j - 1]) ? 1 : 2;
      cost[i][j] = std::min({cost[i - 1][j] + 2, cost[i][j - 1] + 2, cost[i - 1][j - 1] + differs});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 2);
      }
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      char escape[5];
      std::snprintf(escape, sizeof escape, "\\x%02x", byte);
      out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : escape;
    } else {
      out += c;
    }
  }
  return out;
}

std::string Quoted(std::string_view text) {
  const bool cut = text.size() > kShown;
  if (cut) {
    size_t end = kShown;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
    text = text.substr(0, end);
  }
  return '"' + Printable(text) + (cut ? "…" : "") + '"';
}

std::string PathTo(const std::string& path, std::string_view key) {
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
  };
  if (key.empty() || key.size() > kShown || !std::all_of(key.begin(), key.end(), is_word)) {
    return path + "[" + Quoted(key) + "]";
  }
  return path.empty() ? std::string(key) : path + "." + std::string(key);
}

std::string PathTo(const std::string& path, size_t index) { return path + "[" + std::to_string(index) + "]"; }

std::string Joined(std::span<const std::string_view> words) {
  std::string out;
  for (const std::string_view word : words) {
    if (!out.empty()) out += ", ";
    out += word;
  }
  return out;
}

std::string_view Nearest(std::string_view text, std::span<const std::string_view> words) {
  if (text.empty() || text.size() > kLongestWord) return {};
  std::string_view nearest;
  // A third of the letters may be wrong, but not all of a short word.
  int best = 1 + 2 * std::max<int>(1, static_cast<int>(text.size()) / 3);
  for (const std::string_view word : words) {
    // Any word in the wrong case is near enough, "gpu" as well.
    const bool same = std::equal(text.begin(), text.end(), word.begin(), word.end(),
                                 [](char a, char b) { return LowerCase(a) == LowerCase(b); });
    if (same) return word;
    const int edits = HalfEdits(text, word);
    if (edits < best && edits < 2 * static_cast<int>(word.size())) {
      best = edits;
      nearest = word;
    }
  }
  return nearest;
}

}  // namespace lockstep::spec
