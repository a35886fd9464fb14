#include "trainer/data/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "trainer/error.h"

namespace lockstep::trainer::data {

InputFile::InputFile(const std::string& path)
    // Without blocking, or a named pipe would wait for its writer.
    : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (!fd_) Fail(std::strerror(errno));
  struct stat status;
  if (::fstat(fd_.get(), &status) != 0) Fail(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) Fail("not a regular file");
  size_ = static_cast<size_t>(status.st_size);
}

void InputFile::ReadAt(size_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) Fail(std::string("reading failed: ") + std::strerror(errno));
    if (n == 0)
      Fail("ends at byte " + std::to_string(offset) + " while " + std::to_string(out.size()) +
           " more were expected");
    out = out.subspan(static_cast<size_t>(n));
    offset += static_cast<size_t>(n);
  }
}

std::vector<std::byte> InputFile::ReadAll() const {
  std::vector<std::byte> bytes(size_);
  ReadAt(0, bytes);
  return bytes;
}

void InputFile::Fail(const std::string& message) const { throw BadData(path_ + ": " + message); }

bool IsThere(const std::string& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0;
}

}  // namespace lockstep::trainer::data
