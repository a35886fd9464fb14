#include "launcher/http/tls_credentials.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <utility>
#include <vector>

namespace lockstep::http {

namespace {

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using Bio = std::unique_ptr<BIO, Free>;
using Certificate = std::unique_ptr<X509, Free>;
using Key = std::unique_ptr<EVP_PKEY, Free>;

Bio Open(const std::string& pem) { return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()))); }

// All certificates of a text; none when one of them cannot be read.
std::vector<Certificate> ReadCertificates(const std::string& pem) {
  std::vector<Certificate> certificates;
  const Bio bio = Open(pem);
  while (X509* one = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) certificates.emplace_back(one);
  const bool ended = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (!ended) certificates.clear();
  return certificates;
}

// A key with a passphrase is refused, not asked for on the terminal.
int NoPassphrase(char*, int, int, void*) { return -1; }

}  // namespace

struct TlsCredentials::Parts {
  std::vector<Certificate> authorities;
  std::vector<Certificate> client;  // the certificate, then its chain
  Key key;
  std::string server_name;
  bool verify = true;
};

TlsCredentials::TlsCredentials(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
TlsCredentials::~TlsCredentials() = default;

Result<std::shared_ptr<const TlsCredentials>> TlsCredentials::Make(const TlsOptions& options,
                                                                   const std::string& host) {
  auto parts = std::make_unique<Parts>();
  parts->verify = !options.skip_verification;
  parts->server_name = options.server_name.empty() ? host : options.server_name;
  if (!options.authorities.empty()) {
    parts->authorities = ReadCertificates(options.authorities);
    if (parts->authorities.empty())
      return InvalidArgument("the certificate authority is no certificate in PEM");
  }
  if (options.client_certificate.empty() != options.client_key.empty())
    return InvalidArgument("a client certificate and its key come together");
  if (!options.client_certificate.empty()) {
    parts->client = ReadCertificates(options.client_certificate);
    if (parts->client.empty()) return InvalidArgument("the client certificate is no certificate in PEM");
    parts->key.reset(PEM_read_bio_PrivateKey(Open(options.client_key).get(), nullptr, NoPassphrase, nullptr));
    const bool fits =
        parts->key != nullptr && X509_check_private_key(parts->client.front().get(), parts->key.get()) == 1;
    ERR_clear_error();
    if (parts->key == nullptr)
      return InvalidArgument("the client key is no private key in PEM without a passphrase");
    if (!fits) return InvalidArgument("the client key is not the one of the client certificate");
  }
  return std::shared_ptr<const TlsCredentials>(new TlsCredentials(std::move(parts)));
}

bool TlsCredentials::Install(ssl_ctx_st* context) const {
  bool done = SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1;
  for (size_t i = 0; i < parts_->client.size(); ++i) {
    X509* certificate = parts_->client[i].get();
    done = done && (i == 0 ? SSL_CTX_use_certificate(context, certificate)
                           : SSL_CTX_add1_chain_cert(context, certificate)) == 1;
  }
  if (parts_->key) done = done && SSL_CTX_use_PrivateKey(context, parts_->key.get()) == 1;
  if (!parts_->verify) {
    SSL_CTX_set_verify(context, SSL_VERIFY_NONE, nullptr);
    return done;
  }
  // In the handshake, so that nothing is sent to the wrong server: cpp-httplib looks at the certificate
  // afterwards, and trusts the machine's authorities beside the given ones.
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  X509_STORE* store = SSL_CTX_get_cert_store(context);
  for (const Certificate& authority : parts_->authorities)
    done = done && X509_STORE_add_cert(store, authority.get()) == 1;
  if (parts_->authorities.empty()) done = done && SSL_CTX_set_default_verify_paths(context) == 1;
  X509_VERIFY_PARAM* rules = SSL_CTX_get0_param(context);
  const char* name = parts_->server_name.c_str();
  unsigned char address[sizeof(in6_addr)];
  const bool numeric = inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1;
  return done && (numeric ? X509_VERIFY_PARAM_set1_ip_asc(rules, name)
                          : X509_VERIFY_PARAM_set1_host(rules, name, 0)) == 1;
}

}  // namespace lockstep::http
