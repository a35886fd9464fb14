#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

// Files compressed by gzip (RFC 1952) of one member, as gzip and pigz make them. Whole buffers at once: that
// is three times as fast as a stream. Several members in a file (bgzip, concatenation) are refused. Failures
// are BadData that begin with `path`.
namespace lockstep::trainer::data {

// How many bytes `compressed` says it inflates to. A size that deflate cannot reach from so few bytes is
// refused, so that it can be used to ask for memory.
size_t InflatedSize(std::span<const std::byte> compressed, const std::string& path);

// Inflates to exactly out.size() bytes, checksum verified; writes nothing beyond `out` whatever comes.
void Inflate(std::span<const std::byte> compressed, std::span<std::byte> out, const std::string& path);

}  // namespace lockstep::trainer::data
