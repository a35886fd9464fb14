#include "tests/unit/kube/scripted_server.h"

#include <gtest/gtest.h>
#include <httplib.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <atomic>
#include <mutex>
#include <thread>

namespace lockstep::testing {

namespace {

struct Identity {
  std::unique_ptr<X509, decltype(&X509_free)> certificate{X509_new(), X509_free};
  std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key{EVP_EC_gen("P-256"), EVP_PKEY_free};
};

// Signed by `issuer`, or by itself.
Identity MakeIdentity(const char* name, const char* alternatives, const Identity* issuer) {
  static std::atomic<int> serial = 1;
  Identity made;
  X509* certificate = made.certificate.get();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial++);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, made.key.get());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
  X509* signer = issuer == nullptr ? certificate : issuer->certificate.get();
  X509_set_issuer_name(certificate, X509_get_subject_name(signer));
  X509V3_CTX context;
  X509V3_set_ctx(&context, signer, certificate, nullptr, nullptr, 0);
  const auto add = [&](int kind, const char* value) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
  };
  if (issuer == nullptr) add(NID_basic_constraints, "critical,CA:TRUE");
  if (alternatives != nullptr) add(NID_subject_alt_name, alternatives);
  X509_sign(certificate, issuer == nullptr ? made.key.get() : issuer->key.get(), EVP_sha256());
  return made;
}

std::string Pem(const std::function<void(BIO*)>& write) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new(BIO_s_mem()), BIO_free);
  write(bio.get());
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<size_t>(size)};
}
std::string CertificatePem(const Identity& identity) {
  return Pem([&](BIO* bio) { PEM_write_bio_X509(bio, identity.certificate.get()); });
}
std::string KeyPem(const Identity& identity) {
  return Pem([&](BIO* bio) {
    PEM_write_bio_PrivateKey(bio, identity.key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
}

template <class T, class Free>
std::unique_ptr<T, Free> Read(const std::string& pem, T* (*read)(BIO*, T**, pem_password_cb*, void*),
                              Free free) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(
      BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
  return {read(bio.get(), nullptr, nullptr, nullptr), free};
}

}  // namespace

TestCertificates MakeCertificates() {
  const Identity authority = MakeIdentity("test authority", nullptr, nullptr);
  const Identity server = MakeIdentity("server", "IP:127.0.0.1,DNS:api.test", &authority);
  const Identity client = MakeIdentity("client", nullptr, &authority);
  return {.authority = CertificatePem(authority),
          .server = CertificatePem(server),
          .server_key = KeyPem(server),
          .client = CertificatePem(client),
          .client_key = KeyPem(client)};
}

class ScriptedServer::Impl {
 public:
  Impl(Script script, bool tls, bool wants_client_certificate) : script_(std::move(script)), tls_(tls) {
    if (tls) {
      certificates_ = MakeCertificates();
      const auto certificate = Read(certificates_.server, PEM_read_bio_X509, X509_free);
      const auto key = Read(certificates_.server_key, PEM_read_bio_PrivateKey, EVP_PKEY_free);
      const auto authority = Read(certificates_.authority, PEM_read_bio_X509, X509_free);
      X509_STORE* store = nullptr;
      if (wants_client_certificate) {
        store = X509_STORE_new();
        X509_STORE_add_cert(store, authority.get());
      }
      server_ = std::make_unique<httplib::SSLServer>(certificate.get(), key.get(), store);
    } else {
      server_ = std::make_unique<httplib::Server>();
    }
    server_->set_tcp_nodelay(true);
    const httplib::Server::Handler handler =
        [this](const httplib::Request& request, httplib::Response& response) { Answer(request, response); };
    server_->Get(".*", handler)
        .Post(".*", handler)
        .Put(".*", handler)
        .Patch(".*", handler)
        .Delete(".*", handler);
    port_ = server_->bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_->listen_after_bind(); });
    while (!server_->is_running()) std::this_thread::yield();
  }

  ~Impl() {
    ending_ = true;
    server_->stop();
    thread_.join();
  }

  kube::Config config() const {
    kube::Config config;
    config.server = (tls_ ? "https://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(port_);
    config.ca_pem = certificates_.authority;
    config.client_certificate_pem = certificates_.client;
    config.client_key_pem = certificates_.client_key;
    return config;
  }

  std::vector<SeenRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void Answer(const httplib::Request& request, httplib::Response& response) {
    int number = 0;
    SeenRequest seen{.method = request.method,
                     .target = request.target,
                     .body = request.body,
                     .content_type = request.get_header_value("Content-Type"),
                     .authorization = request.get_header_value("Authorization")};
    {
      const std::lock_guard lock(mutex_);
      number = static_cast<int>(requests_.size());
      requests_.push_back(seen);
    }
    const ScriptedAnswer answer = script_(seen, number);
    response.status = answer.status;
    if (!answer.retry_after.empty()) response.set_header("Retry-After", answer.retry_after);
    if (answer.pieces.empty() && !answer.stays_open) {
      response.set_content(answer.body, "application/json");
      return;
    }
    response.set_chunked_content_provider("application/json",
                                          [this, answer](size_t, httplib::DataSink& sink) {
                                            for (const std::string& piece : answer.pieces)
                                              sink.write(piece.data(), piece.size());
                                            while (answer.stays_open && !ending_ && sink.is_writable())
                                              std::this_thread::sleep_for(std::chrono::milliseconds(5));
                                            sink.done();
                                            return !answer.stays_open;
                                          });
  }

  const Script script_;
  const bool tls_;
  TestCertificates certificates_;
  std::unique_ptr<httplib::Server> server_;
  int port_ = 0;
  mutable std::mutex mutex_;
  std::vector<SeenRequest> requests_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

ScriptedServer::ScriptedServer(Script script, bool tls, bool wants_client_certificate)
    : impl_(std::make_unique<Impl>(std::move(script), tls, wants_client_certificate)) {}
ScriptedServer::~ScriptedServer() = default;
kube::Config ScriptedServer::config() const { return impl_->config(); }
std::vector<SeenRequest> ScriptedServer::requests() const { return impl_->requests(); }

std::unique_ptr<kube::Client> ScriptedServer::Connect(kube::ClientOptions options) const {
  auto client = kube::Client::Make(config(), std::move(options));
  EXPECT_TRUE(client.ok()) << client.status().ToString();
  return *std::move(client);
}

}  // namespace lockstep::testing
