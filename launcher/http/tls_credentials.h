#pragma once

#include <memory>
#include <string>

#include "common/status.h"
#include "launcher/http/session.h"

struct ssl_ctx_st;

namespace lockstep::http {

// The certificates and keys of a session, read once and given to each of its connections. Immutable.
class TlsCredentials {
 public:
  // `host`: whom the server's certificate is to name unless the options say otherwise. kInvalidArgument.
  static Result<std::shared_ptr<const TlsCredentials>> Make(const TlsOptions& options,
                                                            const std::string& host);
  ~TlsCredentials();
  TlsCredentials(const TlsCredentials&) = delete;
  TlsCredentials& operator=(const TlsCredentials&) = delete;

  // Lets the context present our certificate, and take only servers whose certificate and name are right.
  // False when OpenSSL has no memory left.
  bool Install(ssl_ctx_st* context) const;

 private:
  struct Parts;
  explicit TlsCredentials(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace lockstep::http
