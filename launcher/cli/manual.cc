#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "common/contract/exit_codes.h"
#include "launcher/cli/commands.h"
#include "launcher/job/run_folder.h"

// The manual pages, from what the command line says of itself: lockstep.1, and one for each of its commands.
// A command's own commands have sections in its page.
namespace lockstep::cli {

namespace {

// Text as man(7) reads it: no line of it is a macro, and a hyphen stays one that can be copied.
std::string Escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool begins = result.empty() || result.back() == '\n';
    if (begins && (c == '.' || c == '\'')) result += "\\&";
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      result += c;
    }
  }
  return result;
}

std::string Bold(std::string_view text) { return "\\fB" + Escaped(text) + "\\fR"; }
std::string Italic(std::string_view text) { return "\\fI" + Escaped(text) + "\\fR"; }

std::string Sentence(std::string text) {
  if (!text.empty()) text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  return Escaped(text) + (text.ends_with('.') ? "" : ".");
}

std::vector<const CLI::App*> CommandsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); });
}

// "TEXT:{yaml,json}" is yaml|json, "INT:NONNEGATIVE" is INT; empty: it takes none.
std::string ValueOf(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";
  std::string type = option.get_type_name();
  const size_t open = type.find('{');
  const size_t close = type.find('}', open);
  if (open != std::string::npos && close != std::string::npos) {
    type = type.substr(open + 1, close - open - 1);
    std::replace(type.begin(), type.end(), ',', '|');
    return type;
  }
  return type.substr(0, type.find(':'));
}

bool IsShown(const CLI::Option& option) { return !option.get_group().empty(); }

void WriteOption(const CLI::Option& option, std::ostream& page) {
  std::string names;
  const auto add = [&](const std::string& name) { names += (names.empty() ? "" : ", ") + Bold(name); };
  for (const std::string& name : option.get_snames()) add("-" + name);
  for (const std::string& name : option.get_lnames()) add("--" + name);
  if (const std::string value = ValueOf(option); !value.empty()) names += " " + Italic(value);
  page << ".TP\n" << names << "\n" << Sentence(option.get_description());
  for (const CLI::Option* other : option.get_excludes())
    page << " Not with " << Bold(other->get_name()) << ".";
  if (!option.get_envname().empty()) page << " Else what " << Bold(option.get_envname()) << " says.";
  page << "\n";
}

// The command's arguments, then its options.
void WriteOptions(const CLI::App& command, std::ostream& page) {
  for (const CLI::Option* option : command.get_options()) {
    if (!IsShown(*option) || !option->get_positional()) continue;
    page << ".TP\n" << Italic(option->get_name()) << "\n" << Sentence(option->get_description()) << "\n";
  }
  for (const CLI::Option* option : command.get_options()) {
    if (IsShown(*option) && !option->get_positional()) WriteOption(*option, page);
  }
}

std::string Synopsis(const std::string& name, const CLI::App& command) {
  std::string text = Bold(name) + " [" + Italic("OPTION") + " ...]";
  if (!CommandsOf(command).empty()) return text + " " + Italic("COMMAND") + " ...";
  for (const CLI::Option* option : command.get_options()) {
    if (!IsShown(*option) || !option->get_positional()) continue;
    const std::string argument =
        Italic(option->get_name()) + (option->get_items_expected_max() > 1 ? " ..." : "");
    text += option->get_required() ? " " + argument : " [" + argument + "]";
  }
  return text;
}

std::string Hyphened(std::string name) {
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

// `name`: "lockstep run".
std::string PageOf(const CLI::App& command, const std::string& name) {
  std::ostringstream page;
  std::string title = Hyphened(name);
  std::transform(title.begin(), title.end(), title.begin(), [](unsigned char c) { return std::toupper(c); });
  page << ".TH " << title << " 1 \"\" \"Lockstep " LOCKSTEP_VERSION "\" \"Lockstep's Manual\"\n"
       << ".SH NAME\n"
       << Escaped(Hyphened(name)) << " \\- " << Escaped(command.get_description()) << "\n"
       << ".SH SYNOPSIS\n"
       << Synopsis(name, command) << "\n"
       << ".SH OPTIONS\n";
  WriteOptions(command, page);
  const bool whole = command.get_parent() == nullptr;
  const auto commands = CommandsOf(command);
  if (!commands.empty()) page << ".SH COMMANDS\n";
  for (const CLI::App* one : commands) {
    if (whole) {
      page << ".TP\n\\fB" << Escaped(Hyphened(name + " " + one->get_name())) << "\\fR(1)\n"
           << Sentence(one->get_description()) << "\n";
      continue;
    }
    page << ".SS " << Escaped(one->get_name()) << "\n"
         << Synopsis(name + " " + one->get_name(), *one) << "\n.PP\n"
         << Sentence(one->get_description()) << "\n";
    WriteOptions(*one, page);
  }
  if (!whole) page << ".SH SEE ALSO\n.BR lockstep (1)\n";
  return page.str();
}

int WritePages(const CLI::App& app, const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const auto write = [&](const CLI::App& command, const std::string& name) {
    return job::WriteFile((folder / (Hyphened(name) + ".1")).string(), PageOf(command, name));
  };
  Status written = write(app, app.get_name());
  for (const CLI::App* command : CommandsOf(app)) {
    if (written.ok()) written = write(*command, app.get_name() + " " + command->get_name());
  }
  return written.ok() ? contract::kExitDone : Complain(written.message(), kExitFailed);
}

}  // namespace

void AddManual(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("manual", "Write the manual pages")->group("");
  auto folder = std::make_shared<std::string>();
  command->add_option("FOLDER", *folder, "where they go")->required();
  command->callback(
      [&action, &app, folder] { action = [&app, folder] { return WritePages(app, *folder); }; });
}

}  // namespace lockstep::cli
