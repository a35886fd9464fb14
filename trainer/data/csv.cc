#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/data/input_file.h"
#include "trainer/data/readers.h"
#include "trainer/error.h"

// Comma-separated numbers, one sample a line: its features, then its target. Blank lines are left out; blanks
// around a number are ignored; lines may end in CR LF.
namespace lockstep::trainer::data {
namespace {

constexpr int64_t kMostLabels = int64_t{1} << 24;  // integers that a float holds exactly

struct Table {
  int64_t columns = 0;  // 0: not known yet
  std::vector<float> features;
  std::vector<float> targets;
};

class CsvParser {
 public:
  CsvParser(const InputFile& file, const SourceOptions& options, Table* table)
      : file_(file), options_(options), table_(table) {}

  void Parse(std::string_view text) {
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // UTF-8's byte order mark
    bool first = true;
    while (!text.empty()) {
      ++line_;
      const size_t end = text.find('\n');
      std::string_view line = text.substr(0, end);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (Trimmed(line).empty()) continue;
      if (first && IsHeader(line)) {
        first = false;
        continue;
      }
      first = false;
      ParseLine(line);
    }
    if (table_->targets.empty()) file_.Fail("has no samples");
  }

 private:
  static std::string_view Trimmed(std::string_view text) {
    const size_t first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
  }

  static bool ToNumber(std::string_view field, float* value) {
    if (field.starts_with('+')) {
      field.remove_prefix(1);
      if (field.starts_with('-')) return false;
    }
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), *value);
    return error == std::errc() && end == field.data() + field.size() && std::isfinite(*value);
  }

  // Calls visit(field, column) with each field and the column (from 1) where it starts.
  template <typename Visit>
  static void EachField(std::string_view line, Visit visit) {
    for (size_t at = 0; at <= line.size();) {
      const size_t end = std::min(line.find(',', at), line.size());
      const std::string_view field = Trimmed(line.substr(at, end - at));
      visit(field, field.empty() ? at + 1 : static_cast<size_t>(field.data() - line.data()) + 1);
      at = end + 1;
    }
  }

  // A first line that has one number is data: a typing error in it is not to make a header of it.
  static bool IsHeader(std::string_view line) {
    bool any = false;
    EachField(line, [&](std::string_view field, size_t) {
      float value;
      any = any || ToNumber(field, &value);
    });
    return !any;
  }

  void ParseLine(std::string_view line) {
    int64_t column = 0;
    float value = 0;
    EachField(line, [&](std::string_view field, size_t at) {
      if (column > 0) table_->features.push_back(value);
      ++column;
      if (!ToNumber(field, &value)) FailAt(at, NotANumber(field));
      last_at_ = at;
    });
    if (column < 2) FailAt(1, "one column: a sample has its features, then its target, separated by commas");
    if (table_->columns == 0) table_->columns = column;
    if (column != table_->columns) {
      FailAt(1, std::to_string(column) + " columns where the first sample has " +
                    std::to_string(table_->columns));
    }
    if (options_.targets == TargetType::kLabel) CheckLabel(value);
    table_->targets.push_back(value);
  }

  static std::string NotANumber(std::string_view field) {
    if (field.empty()) return "an empty field; every field must be a number";
    constexpr size_t kShown = 40;
    std::string message = "\"" + std::string(field.substr(0, kShown)) + (field.size() > kShown ? "…" : "") +
                          "\" is not a finite number";
    if (field.find(';') != std::string_view::npos) message += "; fields are separated by commas";
    if (field.front() == '"') message += "; quotes are not read";
    return message;
  }

  void CheckLabel(float label) const {
    const int64_t limit = options_.classes > 0 ? options_.classes : kMostLabels;
    if (label >= 0 && label < static_cast<float>(limit) && label == std::floor(label)) return;
    char text[32];
    std::snprintf(text, sizeof text, "%g", label);
    FailAt(last_at_, std::string("label ") + text + ": labels are whole numbers from 0 to " +
                         std::to_string(limit - 1) + "; for other targets use a loss for regression");
  }

  [[noreturn]] void FailAt(size_t column, const std::string& message) const {
    throw BadData(file_.path() + ":" + std::to_string(line_) + ":" + std::to_string(column) + ": " + message);
  }

  const InputFile& file_;
  const SourceOptions& options_;
  Table* table_;
  int64_t line_ = 0;
  size_t last_at_ = 1;  // where the last field read starts
};

Table ReadTable(const std::string& path, const SourceOptions& options) {
  const InputFile file(path);
  if (file.size() > options.memory_limit) {
    file.Fail("has " + std::to_string(file.size()) + " bytes, and the limit is " +
              std::to_string(options.memory_limit));
  }
  Table table;
  const std::vector<std::byte> text = file.ReadAll();
  CsvParser(file, options, &table).Parse({reinterpret_cast<const char*>(text.data()), text.size()});
  return table;
}

class CsvSource : public Source {
 public:
  CsvSource(const DatasetPlan& plan, Table training, Table test)
      : Source(plan), training_(std::move(training)), test_(std::move(test)) {}

 private:
  void Fill(const Destination& to, int64_t, int64_t) override {
    const int64_t first_test = plan().training + plan().validation;
    Store(training_, to, 0);
    Store(test_, to, first_test);
  }

  void Store(const Table& table, const Destination& to, int64_t first) const {
    if (table.targets.empty()) return;
    std::memcpy(to.samples + static_cast<size_t>(first) * plan().sample_bytes(), table.features.data(),
                table.features.size() * sizeof(float));
    for (size_t i = 0; i < table.targets.size(); ++i) {
      const size_t at = (static_cast<size_t>(first) + i) * sizeof(float);
      if (plan().target_type == TargetType::kValue) {
        std::memcpy(to.targets + at, &table.targets[i], sizeof(float));
      } else {
        const auto label = static_cast<int32_t>(table.targets[i]);
        std::memcpy(to.targets + at, &label, sizeof label);
      }
    }
  }

  Table training_, test_;
};

float LargestTarget(const Table& table) {
  float largest = 0;
  for (const float target : table.targets) largest = std::max(largest, target);
  return largest;
}

}  // namespace

std::unique_ptr<Source> OpenCsv(const SourceOptions& options) {
  if (!IsThere(options.path)) {
    throw BadData(options.path +
                  ": no such file or folder; CSV data are a file, or a folder with train.csv and test.csv");
  }
  Table training, test;
  if (IsThere(options.path + "/.")) {
    const std::string path = options.path + "/train.csv", test_path = options.path + "/test.csv";
    if (!IsThere(path))
      throw BadData(options.path +
                    ": no train.csv; CSV data are a file, or a folder with train.csv and test.csv");
    training = ReadTable(path, options);
    if (IsThere(test_path)) test = ReadTable(test_path, options);
    if (test.columns != 0 && test.columns != training.columns) {
      throw BadData(test_path + ": " + std::to_string(test.columns) + " columns where train.csv has " +
                    std::to_string(training.columns));
    }
  } else {
    training = ReadTable(options.path, options);
  }
  DatasetPlan plan;
  plan.sample_type = SampleType::kFloat32;
  plan.target_type = options.targets;
  plan.scale = 1.0f;
  plan.features = training.columns - 1;
  plan.training = static_cast<int64_t>(training.targets.size());
  plan.test = static_cast<int64_t>(test.targets.size());
  if (options.targets == TargetType::kLabel) {
    plan.classes = options.classes > 0
                       ? options.classes
                       : static_cast<int64_t>(std::max(LargestTarget(training), LargestTarget(test))) + 1;
  }
  FinishPlan(options, options.path, &plan);
  return std::make_unique<CsvSource>(plan, std::move(training), std::move(test));
}

}  // namespace lockstep::trainer::data
