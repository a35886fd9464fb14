#include "trainer/collectives/local/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <utility>

#include "common/unique_fd.h"
#include "trainer/error.h"

namespace lockstep::trainer::collectives {
namespace {

[[noreturn]] void ThrowOutOfMemory(std::string_view what, size_t size, int error) {
  throw OutOfMemory("shared segment: " + std::string(what) + " of " + std::to_string(size) +
                    " bytes: " + std::strerror(error));
}

}  // namespace

struct SharedSegment::Mapping {
  Mapping(UniqueFd file, size_t bytes, bool resident) : fd(std::move(file)), size(bytes) {
    void* mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (mapped == MAP_FAILED) ThrowOutOfMemory("mmap", size, errno);
    address = mapped;
    if (!resident) return;
    // Before the first touch; only advice, and refused where huge pages of shared memory are off.
    ::madvise(address, size, MADV_HUGEPAGE);
    // Kernels before 5.14 do not know this one; the pages then come as they are touched.
    if (::madvise(address, size, MADV_POPULATE_WRITE) != 0 && errno == ENOMEM) {
      ::munmap(address, size);
      ThrowOutOfMemory("populating", size, ENOMEM);
    }
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { ::munmap(address, size); }

  UniqueFd fd;  // held open: peers attach through it
  void* address = nullptr;
  size_t size = 0;
};

SharedSegment SharedSegment::Create(std::string_view name, size_t size, bool resident) {
  UniqueFd fd(::memfd_create(("lockstep-" + std::string(name)).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) ThrowOutOfMemory("memfd_create", size, errno);
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) ThrowOutOfMemory("ftruncate", size, errno);
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
    ThrowOutOfMemory("sealing", size, errno);
  }
  SharedSegment segment;
  segment.mapping_ = std::make_shared<Mapping>(std::move(fd), size, resident);
  return segment;
}

void SharedSegment::Publish(contract::Store& store, std::string_view key,
                            contract::Store::Deadline deadline) const {
  struct stat file {};
  if (::fstat(mapping_->fd.get(), &file) != 0) {
    throw RendezvousFailed("shared segment " + std::string(key) + ": fstat: " + std::strerror(errno));
  }
  const std::string where = std::to_string(::getpid()) + " " + std::to_string(mapping_->fd.get()) + " " +
                            std::to_string(static_cast<uintmax_t>(file.st_ino)) + " " +
                            std::to_string(mapping_->size);
  if (const Status status = store.Set(key, where, deadline); !status.ok()) {
    throw RendezvousFailed("shared segment " + std::string(key) + ": " + status.message());
  }
}

SharedSegment SharedSegment::Attach(contract::Store& store, std::string_view key, size_t size,
                                    contract::Store::Deadline deadline, bool resident) {
  const auto fail = [&](const std::string& why) {
    throw RendezvousFailed("shared segment " + std::string(key) + ": " + why);
  };
  const Result<std::string> where = store.Get(key, deadline);
  if (!where.ok()) fail(where.status().message());

  int pid = 0, number = 0;
  uintmax_t inode = 0, published_size = 0;
  if (std::sscanf(where->c_str(), "%d %d %" SCNuMAX " %" SCNuMAX, &pid, &number, &inode, &published_size) !=
      4) {
    fail("the store has \"" + *where + "\" in place of its address");
  }
  if (published_size != size) {
    fail("it has " + std::to_string(published_size) + " bytes where this rank expects " +
         std::to_string(size));
  }
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(number);
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) {
    fail("cannot open " + path + ": " + std::strerror(errno) +
         "; its process is gone, or belongs to another user or PID namespace");
  }
  // The number may mean another file by now, or another process.
  struct stat file {};
  if (::fstat(fd.get(), &file) != 0 || file.st_ino != inode || static_cast<uintmax_t>(file.st_size) != size ||
      (::fcntl(fd.get(), F_GET_SEALS) & F_SEAL_SHRINK) == 0) {
    fail(path + " is not the segment that was published");
  }
  SharedSegment segment;
  segment.mapping_ = std::make_shared<Mapping>(std::move(fd), size, resident);
  return segment;
}

void SharedSegment::Discard(std::span<const std::byte> part) const noexcept {
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(part.data()) + page - 1) / page * page;
  const auto end = (reinterpret_cast<uintptr_t>(part.data()) + part.size()) / page * page;
  // A kernel that cannot keeps the memory, no more.
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_REMOVE);
}

std::byte* SharedSegment::data() const { return static_cast<std::byte*>(mapping_->address); }
size_t SharedSegment::size() const { return mapping_ == nullptr ? 0 : mapping_->size; }

void InProcessSegments::Put(std::string_view key, const SharedSegment& segment) {
  const std::lock_guard lock(mutex_);
  segments_.insert_or_assign(std::string(key), segment);
}

SharedSegment InProcessSegments::Find(std::string_view key) const {
  const std::lock_guard lock(mutex_);
  const auto found = segments_.find(key);
  return found == segments_.end() ? SharedSegment() : found->second;
}

}  // namespace lockstep::trainer::collectives
