#pragma once

#include <httplib.h>

#include <string>

namespace lockstep::http {

// What cpp-httplib says in a word, in words for people.
inline std::string ErrorText(httplib::Error error) {
  switch (error) {
    case httplib::Error::Connection:
      return "nobody answers there";
    case httplib::Error::Read:
      return "no answer, or the connection broke";
    default:
      return httplib::to_string(error);
  }
}

}  // namespace lockstep::http
