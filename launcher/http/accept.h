#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::http {

// One thing that a client would take: an element of Accept, Accept-Encoding and their like.
struct Accepted {
  std::string value;                                   // in lower case: "text/plain", "gzip", "*"
  std::map<std::string, std::string> parameters = {};  // names in lower case, without q
  double q = 1;                                        // 0 … 1; 0: not at all, also what cannot be read
};

// In the order of the header (RFC 9110, 12.4 and 12.5); what is no element is an Accepted with an empty
// value.
std::vector<Accepted> ParseAccepted(std::string_view header);

// Whether a body may be sent as gzip (RFC 9110, 12.5.3).
bool AcceptsGzip(std::string_view accept_encoding);

}  // namespace lockstep::http
