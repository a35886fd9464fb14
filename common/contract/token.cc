#include "common/contract/token.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "common/unique_fd.h"

namespace lockstep::contract {

namespace {

constexpr size_t kFileBytes = 2 * Token::kBytes + 1;

void FillRandom(void* bytes, size_t count) {
  auto* at = static_cast<uint8_t*>(bytes);
  while (count > 0) {
    const ssize_t got = ::getrandom(at, count, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) std::abort();  // there is no safe way to go on without randomness, and Linux always has some
    at += got;
    count -= static_cast<size_t>(got);
  }
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

Status WriteAll(int fd, const char* bytes, size_t count) {
  while (count > 0) {
    const ssize_t written = ::write(fd, bytes, count);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Status::FromErrno(errno, "write");
    bytes += written;
    count -= static_cast<size_t>(written);
  }
  return {};
}

}  // namespace

Token Token::Random() {
  Token token;
  FillRandom(token.bytes_.data(), kBytes);
  return token;
}

Token::~Token() { ::explicit_bzero(bytes_.data(), bytes_.size()); }

std::string_view Token::bytes() const {
  return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
}

Result<Token> Token::Create(const std::string& path) {
  const std::string operation = "token file " + path;
  // Under another name until it is whole: whoever waits for the file never sees half of it.
  std::string temporary = path + ".XXXXXX";
  const UniqueFd file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!file) return Status::FromErrno(errno, operation);

  const Token token = Random();
  char text[kFileBytes];
  for (size_t i = 0; i < kBytes; ++i) {
    text[2 * i] = "0123456789abcdef"[token.bytes_[i] >> 4];
    text[2 * i + 1] = "0123456789abcdef"[token.bytes_[i] & 15];
  }
  text[kFileBytes - 1] = '\n';

  // A umask can take away even the owner's permissions.
  Status status = ::fchmod(file.get(), 0600) == 0 ? Status() : Status::FromErrno(errno, "fchmod");
  if (status.ok()) status = WriteAll(file.get(), text, kFileBytes);
  ::explicit_bzero(text, sizeof text);
  if (status.ok() && ::link(temporary.c_str(), path.c_str()) != 0) {
    status = errno == EEXIST ? FailedPrecondition("it is there already") : Status::FromErrno(errno, "link");
  }
  ::unlink(temporary.c_str());
  if (!status.ok()) return Status(status.code(), operation + ": " + status.message());
  return token;
}

Result<Token> Token::Read(const std::string& path) {
  const std::string operation = "token file " + path;
  // Not blocking: a FIFO of that name must not hang the program.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return Status::FromErrno(errno, operation);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return Status::FromErrno(errno, operation);
  if (!S_ISREG(info.st_mode)) return InvalidArgument(operation + ": not a regular file");
  if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    return PermissionDenied(operation + ": belongs to user " + std::to_string(info.st_uid) +
                            "; it must belong to the user who runs the job (" + std::to_string(::geteuid()) +
                            ") or to root");
  }
  if ((info.st_mode & 0077) != 0) {
    char mode[8];
    std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(info.st_mode & 07777));
    return PermissionDenied(operation + ": its mode " + mode +
                            " lets others at the job's secret; it must be 0600 (chmod 600 " + path + ")");
  }

  char text[kFileBytes + 1];
  size_t count = 0;
  while (count < sizeof text) {
    const ssize_t got = ::read(file.get(), text + count, sizeof text - count);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::FromErrno(errno, operation);
    if (got == 0) break;
    count += static_cast<size_t>(got);
  }
  Token token;
  bool good = count == kFileBytes - 1 || (count == kFileBytes && text[kFileBytes - 1] == '\n');
  for (size_t i = 0; good && i < kBytes; ++i) {
    const int high = HexDigit(text[2 * i]);
    const int low = HexDigit(text[2 * i + 1]);
    good = high >= 0 && low >= 0;
    token.bytes_[i] = static_cast<uint8_t>(high * 16 + low);
  }
  ::explicit_bzero(text, sizeof text);
  if (!good)
    return InvalidArgument(operation + ": holds no token, which is one line of 64 hexadecimal digits");
  return token;
}

bool ConstantTimeEqual(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  FillRandom(bytes.data(), count);
  return bytes;
}

}  // namespace lockstep::contract
