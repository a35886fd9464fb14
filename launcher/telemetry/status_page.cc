#include "launcher/telemetry/status_page.h"

#include <cmath>

#include "launcher/telemetry/text_format.h"

namespace lockstep::telemetry {

namespace {

// Whoever changes this changes kStyleHash too; the unit test says what it should be.
constexpr std::string_view kStyle =
    R"(:root{--ink:#1c2330;--soft:#5d6778;--line:#dfe3ea;--paper:#fff;--ground:#f4f6f9;--good:#1a7f4b;--busy:#a35b00;--bad:#b3261e}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ef;--soft:#9aa4b5;--line:#2c3442;--paper:#171c26;--ground:#0f131a;--good:#4cc38a;--busy:#f0a94b;--bad:#ff7b72}}
*{box-sizing:border-box}
body{margin:0;padding:2rem 1rem;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:60rem;margin:auto}
h1{margin:0;font-size:1.5rem;display:flex;gap:.75rem;align-items:center;flex-wrap:wrap}
h1 span{font-size:.85rem;padding:.1rem .7rem;border-radius:1rem;border:1px solid;color:var(--busy)}
h1 .Running,h1 .Succeeded{color:var(--good)}
h1 .Failed{color:var(--bad)}
.soft{color:var(--soft)}
section{background:var(--paper);border:1px solid var(--line);border-radius:.5rem;padding:1rem 1.25rem;margin-top:1rem;overflow-x:auto}
section.bad{border-color:var(--bad)}
progress{width:100%;height:.8rem;accent-color:var(--good)}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(9rem,1fr));gap:.75rem 1.5rem;margin:.75rem 0 0}
dt{color:var(--soft);font-size:.8rem}
dd{margin:0;font-size:1.15rem;font-variant-numeric:tabular-nums}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:.3rem .75rem;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--soft);font-weight:500;font-size:.8rem}
th:first-child,td:first-child,.t{text-align:left}
tr:last-child td{border-bottom:0}
a{color:inherit}
nav{margin-top:1rem;display:flex;gap:1.25rem})";

constexpr std::string_view kStyleHash = "sha256-erAVoX6DlddhYR43DwPw5nic0FIRH0ON0inN9bfeGnE=";

std::string Escape(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string Figure(std::string_view name, const std::string& value) {
  return "<div><dt>" + std::string(name) + "</dt><dd>" + Escape(value) + "</dd></div>\n";
}

std::string ProgressSection(const JobSnapshot& snapshot) {
  if (!snapshot.progress) return "<section class=\"soft\">No step yet.</section>\n";
  const Progress& progress = *snapshot.progress;
  std::string html = "<section>\n";
  if (progress.total_steps > 0) {
    html += "<progress aria-label=\"Steps done\" max=\"" + std::to_string(progress.total_steps) +
            "\" value=\"" + std::to_string(progress.step) + "\"></progress>\n";
  }
  html += "<dl>\n";
  const std::string total = progress.total_steps > 0 ? " / " + Grouped(progress.total_steps) : "";
  html += Figure("Step", Grouped(progress.step) + total);
  if (progress.percentage) html += Figure("Done", std::to_string(*progress.percentage) + " %");
  html += Figure("Epoch", Grouped(progress.epoch + 1));
  if (progress.loss) html += Figure("Loss", FormatLoss(*progress.loss));
  if (progress.accuracy) html += Figure("Accuracy", FormatDecimals(*progress.accuracy * 100, 2) + " %");
  if (progress.samples_per_second)
    html += Figure("Samples/s", Grouped(std::llround(*progress.samples_per_second)));
  if (progress.remaining_seconds && snapshot.phase == JobPhase::kRunning) {
    html += Figure("Time left", FormatDuration(*progress.remaining_seconds));
  }
  if (snapshot.goodput) html += Figure("Goodput", FormatDecimals(*snapshot.goodput * 100, 1) + " %");
  return html + "</dl>\n</section>\n";
}

std::string FailureSection(const JobSnapshot& snapshot) {
  if (!snapshot.last_failure) return "";
  const Failure& failure = *snapshot.last_failure;
  std::string html = "<section class=\"bad\"><strong>Last failure</strong>";
  if (failure.rank >= 0) html += ", rank " + std::to_string(failure.rank);
  html += ": " + Escape(failure.reason);
  if (failure.exit_code) html += " (exit code " + std::to_string(*failure.exit_code) + ")";
  return html + "<br>" + Escape(failure.message) + "</section>\n";
}

std::string RankRow(const RankSnapshot& rank) {
  std::string html = "<tr>";
  const auto cell = [&](const std::string& text, const char* attributes = "") {
    html += "<td" + std::string(attributes) + ">" + Escape(text) + "</td>";
  };
  cell(std::to_string(rank.identity.rank));
  cell(rank.identity.role, " class=\"t\"");
  cell(std::to_string(rank.identity.replica));
  cell(rank.pid > 0 ? std::to_string(rank.pid) : "");
  const std::string exit = rank.exit_code ? " with " + std::to_string(*rank.exit_code) : "";
  cell(std::string(RankStateName(rank.state)) + exit, " class=\"t\"");
  cell(rank.state == RankState::kRunning ? std::string(RankPhaseName(rank.phase)) : "", " class=\"t\"");
  cell(rank.step > 0 ? Grouped(rank.step) : "");
  cell(rank.step_seconds > 0 ? FormatDecimals(rank.step_seconds * 1e3, 2) + " ms" : "");
  cell(rank.memory_bytes ? FormatBytes(*rank.memory_bytes) : "");
  return html + "</tr>\n";
}

}  // namespace

std::string StatusPage(const JobSnapshot& snapshot) {
  const bool done = snapshot.phase == JobPhase::kSucceeded || snapshot.phase == JobPhase::kFailed;
  const std::string name = Escape(snapshot.description.name);
  const std::string phase(JobPhaseName(snapshot.phase));
  std::string html = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  html += "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n";
  if (!done) html += "<meta http-equiv=\"refresh\" content=\"2\">\n";
  html += "<title>" + name + ": " + phase + "</title>\n<style>" + std::string(kStyle) +
          "</style>\n</head>\n<body>\n<main>\n";

  html += "<h1>" + name + " <span class=\"" + phase + "\">" + phase + "</span></h1>\n";
  html += "<div class=\"soft\">" + Escape(snapshot.description.namespace_name) + " · " +
          Escape(snapshot.description.framework) + " · " + Escape(snapshot.description.strategy) + " · " +
          std::to_string(snapshot.description.world_size) + " processes · generation " +
          std::to_string(snapshot.generation) + " · " + std::to_string(snapshot.restarts) + " restarts · " +
          FormatDuration(std::floor(snapshot.elapsed_seconds)) + "</div>\n";
  html += ProgressSection(snapshot) + FailureSection(snapshot);
  html +=
      "<section><table>\n<tr><th>Rank</th><th class=\"t\">Role</th><th>Replica</th><th>PID</th>"
      "<th class=\"t\">State</th><th class=\"t\">Phase</th><th>Step</th><th>Step "
      "time</th><th>Memory</th></tr>\n";
  for (const RankSnapshot& rank : snapshot.ranks) html += RankRow(rank);
  html += "</table></section>\n";
  html +=
      "<nav class=\"soft\"><a href=\"/status\">status</a><a href=\"/metrics\">metrics</a>"
      "<a href=\"/healthz\">healthz</a><a href=\"/readyz\">readyz</a></nav>\n</main>\n</body>\n</html>\n";
  return html;
}

std::string_view StatusPagePolicy() {
  static const std::string policy = "default-src 'none'; style-src '" + std::string(kStyleHash) +
                                    "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
  return policy;
}

std::string_view StatusPageStyle() { return kStyle; }

}  // namespace lockstep::telemetry
