#include "launcher/http/accept.h"

#include <charconv>

#include "common/lower_case.h"

namespace lockstep::http {

namespace {

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// Takes the part before `separator` off the front.
std::string_view TakePart(std::string_view& text, char separator) {
  const size_t end = text.find(separator);
  const std::string_view part = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  return Trim(part);
}

double ReadWeight(std::string_view text) {
  double q = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), q);
  return error == std::errc() && end == text.data() + text.size() && q >= 0 && q <= 1 ? q : 0;
}

Accepted ReadElement(std::string_view text) {
  Accepted accepted{.value = LowerCase(TakePart(text, ';'))};
  while (!text.empty()) {
    std::string_view value = TakePart(text, ';');
    const std::string name = LowerCase(TakePart(value, '='));
    if (name == "q") {
      accepted.q = ReadWeight(value);
    } else {
      accepted.parameters[name] = value;
    }
  }
  return accepted;
}

}  // namespace

std::vector<Accepted> ParseAccepted(std::string_view header) {
  std::vector<Accepted> all;
  while (!header.empty()) all.push_back(ReadElement(TakePart(header, ',')));
  return all;
}

bool AcceptsGzip(std::string_view accept_encoding) {
  double any = 0;
  for (const Accepted& accepted : ParseAccepted(accept_encoding)) {
    if (accepted.value == "gzip" || accepted.value == "x-gzip") return accepted.q > 0;
    if (accepted.value == "*") any = accepted.q;
  }
  return any > 0;
}

}  // namespace lockstep::http
