#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::cuda_on_host {

// A file without a name, in memory, that goes when the last process lets go of it; what an IPC handle stands
// for.
struct SharedFileName {
  int32_t process = 0;
  int32_t fd = -1;
  uint64_t inode = 0;
  uint64_t bytes = 0;
  uint64_t offset = 0;  // of what is shared, in the file
};

// The descriptor; -1 if none can be had.
int MakeSharedFile(size_t bytes);
SharedFileName NameOf(int fd, size_t bytes, size_t offset);
// -1 if its owner is gone, or this process may not open it.
int OpenSharedFile(const SharedFileName& name);

}  // namespace lockstep::cuda_on_host
