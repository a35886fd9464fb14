#include "launcher/ledger/claim_file.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace lockstep::ledger {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;
constexpr size_t kMaxTextBytes = 256;
constexpr int64_t kMaxSeconds = int64_t{1} << 33;  // some two centuries: times that can be printed

// Reads fields until one is wrong; then all of them are.
class Fields {
 public:
  explicit Fields(const Json& object) : object_(object) {}

  std::string Text(const char* name) {
    const auto found = object_.find(name);
    if (found == object_.end() || !found->is_string()) return Wrong(name, "no string"), "";
    std::string text = found->get<std::string>();
    if (text.size() > kMaxTextBytes) return Wrong(name, "too long"), "";
    return text;
  }
  int64_t Count(const char* name, int64_t most) {
    const auto found = object_.find(name);
    if (found == object_.end() || !found->is_number_integer()) return Wrong(name, "no whole number"), 0;
    // Larger than int64_t is read as unsigned.
    const bool large = found->is_number_unsigned() && found->get<uint64_t>() > static_cast<uint64_t>(most);
    if (large || found->get<int64_t>() < 0) return Wrong(name, "out of range"), 0;
    return found->get<int64_t>();
  }
  double Share(const char* name) {
    const auto found = object_.find(name);
    if (found == object_.end() || !found->is_number()) return Wrong(name, "no number"), 0;
    const auto value = found->get<double>();
    if (!std::isfinite(value) || value < 0 || value > 1024) return Wrong(name, "out of range"), 0;
    return value;
  }
  const std::string& wrong() const { return wrong_; }

 private:
  void Wrong(const char* name, const char* what) {
    if (wrong_.empty()) wrong_ = std::string(name) + " is " + what;
  }

  const Json& object_;
  std::string wrong_;
};

}  // namespace

std::string WriteClaim(const Claim& claim) {
  const Json json = {
      {"version", kVersion},
      {"device", claim.use.device},
      {"job", claim.job},
      {"namespace", claim.namespace_name},
      {"pid", claim.pid},
      {"since", std::chrono::duration_cast<std::chrono::seconds>(claim.since.time_since_epoch()).count()},
      {"policy", claim.use.policy},
      {"bytes", claim.use.bytes},
      {"share", claim.use.share},
      {"deviceBytes", claim.use.total_bytes},
      {"processes", claim.use.processes}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Claim> ReadClaim(std::string_view text) {
  if (text.size() > kMaxClaimBytes) return InvalidArgument("is too long for a claim");
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return InvalidArgument("is no JSON object");
  Fields fields(json);
  constexpr int64_t kMostBytes = int64_t{1} << 60;
  Claim claim;
  const int64_t version = fields.Count("version", 1 << 20);
  if (fields.wrong().empty() && version != kVersion) {
    return InvalidArgument("is of version " + std::to_string(version) +
                           ", which this Lockstep does not know");
  }
  claim.use.device = fields.Text("device");
  claim.job = fields.Text("job");
  claim.namespace_name = fields.Text("namespace");
  claim.pid = static_cast<int>(fields.Count("pid", 1 << 30));
  claim.since =
      std::chrono::system_clock::time_point(std::chrono::seconds(fields.Count("since", kMaxSeconds)));
  claim.use.policy = fields.Text("policy");
  claim.use.bytes = fields.Count("bytes", kMostBytes);
  claim.use.share = fields.Share("share");
  claim.use.total_bytes = fields.Count("deviceBytes", kMostBytes);
  claim.use.processes = static_cast<int>(fields.Count("processes", 1 << 20));
  if (!fields.wrong().empty()) return InvalidArgument("is no claim: " + fields.wrong());
  return claim;
}

}  // namespace lockstep::ledger
