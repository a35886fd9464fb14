#include "launcher/import/command_line.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace lockstep::importer {

namespace {

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

class Splitter {
 public:
  explicit Splitter(std::string_view text) : text_(text) {}

  std::optional<std::vector<Word>> Split() {
    while (i_ < text_.size() && sound_) {
      const char c = text_[i_];
      if (c == '\\' && Next() == '\n') {
        End();
        i_ += 2;
      } else if (IsBlank(c)) {
        End();
        ++i_;
      } else if (c == '\n') {
        End();
        if (!words_.empty()) ended_ = true;
        ++i_;
      } else if (c == '#' && !open_) {
        i_ = std::min(text_.find('\n', i_), text_.size());
      } else {
        Take(c);
      }
    }
    End();
    if (!sound_) return std::nullopt;
    return std::move(words_);
  }

 private:
  char Next() const { return i_ + 1 < text_.size() ? text_[i_ + 1] : '\0'; }

  void Take(char c) {
    if (ended_) sound_ = false;  // a second command
    open_ = true;
    const size_t begin = i_;
    constexpr std::string_view kMore = ";&|<>()`";
    if (c == '\'') {
      const size_t end = text_.find('\'', i_ + 1);
      if (end == std::string_view::npos) {
        sound_ = false;
        return;
      }
      word_.text += text_.substr(i_ + 1, end - i_ - 1);
      i_ = end + 1;
    } else if (c == '"') {
      TakeDoubleQuoted();
    } else if (c == '\\') {
      word_.text += Next();
      sound_ = sound_ && i_ + 1 < text_.size();
      i_ += 2;
    } else if (kMore.find(c) != std::string_view::npos || (c == '$' && Next() == '(')) {
      sound_ = false;
    } else {
      word_.expands = word_.expands || c == '$' || c == '*' || c == '?' || c == '[';
      word_.text += c;
      ++i_;
    }
    word_.raw += text_.substr(begin, std::min(i_, text_.size()) - begin);
  }

  void TakeDoubleQuoted() {
    for (++i_; i_ < text_.size() && text_[i_] != '"'; ++i_) {
      const char c = text_[i_];
      if (c == '`' || (c == '$' && Next() == '(')) sound_ = false;
      if (c == '\\' && std::string_view("$`\"\\").find(Next()) != std::string_view::npos) {
        word_.text += text_[++i_];
        continue;
      }
      word_.expands = word_.expands || c == '$';
      word_.text += c;
    }
    sound_ = sound_ && i_ < text_.size();
    ++i_;
  }

  void End() {
    if (open_) words_.push_back(std::move(word_));
    word_ = {};
    open_ = false;
  }

  std::string_view text_;
  size_t i_ = 0;
  std::vector<Word> words_;
  Word word_;
  bool open_ = false;   // within a word
  bool ended_ = false;  // the command is over
  bool sound_ = true;
};

}  // namespace

std::optional<std::vector<Word>> SplitCommand(std::string_view text) { return Splitter(text).Split(); }

std::vector<Word> WordsOf(const std::vector<std::string>& texts) {
  std::vector<Word> words;
  words.reserve(texts.size());
  for (const std::string& text : texts) words.push_back({.text = text, .raw = text});
  return words;
}

std::vector<std::string> CommandOf(const std::vector<Word>& words, const std::vector<std::string>& shell) {
  std::vector<std::string> command;
  if (std::none_of(words.begin(), words.end(), [](const Word& word) { return word.expands; })) {
    for (const Word& word : words) command.push_back(word.text);
    return command;
  }
  std::string script = "exec";  // signals go to the program, not to a shell before it
  for (const Word& word : words) script += " " + word.raw;
  command = shell;
  command.push_back(std::move(script));
  return command;
}

bool IsAssignment(std::string_view text) {
  const size_t end = text.find('=');
  if (end == 0 || end == std::string_view::npos || std::isdigit(static_cast<unsigned char>(text[0])) != 0)
    return false;
  return std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

std::string_view BaseName(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::optional<int> ParseNumber(std::string_view text, int min, int max) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < min || number > max)
    return std::nullopt;
  return number;
}

}  // namespace lockstep::importer
