#include "launcher/telemetry/page.h"

#include <cstdint>
#include <string_view>
#include <utility>

#include "common/contract/digest.h"
#include "launcher/telemetry/page_files.h"

namespace lockstep::telemetry {

namespace {

// RFC 4648, section 4, of bytes that are written as hexadecimal digits.
std::string Base64OfHex(const std::string& hex) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string result;
  uint32_t bits = 0;
  int count = 0;
  for (const char digit : hex) {
    bits = bits << 4 | static_cast<uint32_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
    count += 4;
    if (count < 6) continue;
    count -= 6;
    result += kDigits[bits >> count & 63];
  }
  if (count > 0) result += kDigits[bits << (6 - count) & 63];
  while (result.size() % 4 != 0) result += '=';
  return result;
}

std::string Source(std::string_view text) { return "'sha256-" + Base64OfHex(contract::Digest(text)) + "'"; }

void Insert(std::string& html, std::string_view place, std::string_view text) {
  html.replace(html.find(place), place.size(), text);
}

Page Assemble(std::string_view html, const std::string& script) {
  Page page{.html = std::string(html)};
  Insert(page.html, "@style@", kPageCss);
  Insert(page.html, "@script@", script);
  page.policy =
      "default-src 'none'; script-src " + Source(script) + "; style-src " + Source(kPageCss) +
      "; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
  return page;
}

}  // namespace

Page JobPage() {
  return Assemble(kJobHtml, std::string(kCommonJs) + std::string(kChartJs) + std::string(kJobJs));
}

Page JobsPage() { return Assemble(kJobsHtml, std::string(kCommonJs) + std::string(kJobsJs)); }

void ServePage(http::HttpServer& server, Page page) {
  server.Handle("/", [page = std::move(page)](const http::Request&) {
    return http::Response{
        .content_type = "text/html; charset=utf-8",
        .body = page.html,
        .headers = {{"Content-Security-Policy", page.policy}, {"Referrer-Policy", "no-referrer"}},
        .compresses = true};
  });
}

}  // namespace lockstep::telemetry
