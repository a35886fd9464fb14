#include "common/contract/digest.h"

#include <openssl/evp.h>

#include <array>

#include "common/contract/authentication.h"

namespace lockstep::contract {

std::string Digest(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned int size = 0;
  ::EVP_Digest(text.data(), text.size(), bytes.data(), &size, ::EVP_sha256(), nullptr);
  return ToHex({reinterpret_cast<const char*>(bytes.data()), size});
}

}  // namespace lockstep::contract
