#include "launcher/http/gzip.h"

#include <libdeflate.h>

#include <memory>

namespace lockstep::http {

namespace {

constexpr int kFastest = 1;

struct FreeCompressor {
  void operator()(libdeflate_compressor* compressor) const { libdeflate_free_compressor(compressor); }
};

}  // namespace

std::optional<std::string> Gzip(std::string_view text) {
  const std::unique_ptr<libdeflate_compressor, FreeCompressor> compressor(
      libdeflate_alloc_compressor(kFastest));
  if (compressor == nullptr) return std::nullopt;
  std::string compressed(text.size(), '\0');
  const size_t size = libdeflate_gzip_compress(compressor.get(), text.data(), text.size(), compressed.data(),
                                               compressed.size());
  if (size == 0) return std::nullopt;  // there is no room for it
  compressed.resize(size);
  return compressed;
}

}  // namespace lockstep::http
