#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/cuda_on_host/devices.h"
#include "tests/support/cuda_on_host/runtime.h"
#include "tests/support/cuda_on_host/shared_file.h"

// NCCL over memory that the ranks share, be they threads or processes. An operation blocks its stream until
// all ranks have come to it, as NCCL's kernels do; a rank that dies is not noticed; sums are not added in the
// order of ranks. NCCL_ON_HOST_VERSION is the version it says it is, as NCCL codes it.

using namespace lockstep::cuda_on_host;

namespace {

constexpr int kMostRanks = 16;
constexpr size_t kPiece = 64 * 1024;
constexpr auto kPause = std::chrono::microseconds(20);

// What all ranks must ask for at once.
struct Operation {
  enum Kind : int { kAllReduce, kReduce, kBroadcast, kReduceScatter, kAllGather, kSend } kind;
  ncclDataType_t type;
  int root;
  uint64_t count;  // of all ranks together, where each has a part
  friend bool operator==(const Operation&, const Operation&) = default;
};

struct Rank {
  std::atomic<uint64_t> arrived;  // at so many barriers
  std::atomic<uint32_t> joined, finalized;
  char uuid[64];
  int physical;
  Operation operation;
  alignas(64) std::byte piece[kPiece];
};

// In the shared file; begins as zeros.
struct Group {
  Rank ranks[kMostRanks];
};

Group* Map(int fd) {
  void* memory = ::mmap(nullptr, sizeof(Group), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Group*>(memory);
}

int Version() {
  const char* code = std::getenv("NCCL_ON_HOST_VERSION");
  return code == nullptr ? NCCL_VERSION_CODE : std::atoi(code);
}

size_t SizeOf(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return 1;
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

}  // namespace

struct ncclComm {
  ~ncclComm() {
    if (group != nullptr) ::munmap(group, sizeof(Group));
  }
  // False where this rank gives up, or another asks for something else.
  bool Barrier() {
    const uint64_t number = group->ranks[rank].arrived.load() + 1;
    group->ranks[rank].arrived.store(number);
    return WaitForAll([&](const Rank& each) { return each.arrived.load() >= number; });
  }
  bool WaitForAll(const std::function<bool(const Rank&)>& has_come) {
    for (int r = 0; r < size; ++r) {
      while (!has_come(group->ranks[r])) {
        if (aborted.load()) return false;
        std::this_thread::sleep_for(kPause);
      }
    }
    return true;
  }
  void Fail(ncclResult_t result, const std::string& why) {
    const std::scoped_lock lock(mutex);
    error = why;
    state.store(result);
  }

  int rank = 0, size = 0;
  int device = 0;
  Group* group = nullptr;
  std::atomic<ncclResult_t> state{ncclInProgress};
  std::atomic<bool> aborted{false};
  std::atomic<int> running{0};  // operations, and threads of its own
  std::mutex mutex;             // error
  std::string error;
  std::mutex one_at_a_time;  // operations
  bool used = false;
};

namespace {

// A thread that works for the communicator.
void Behind(ncclComm* comm, std::function<void()> work) {
  comm->running.fetch_add(1);
  std::thread([comm, work = std::move(work)] {
    work();
    comm->running.fetch_sub(1);
  }).detach();
}

template <typename T>
void AddPiecesOf(const Group& group, int size, int first, size_t count, void* to) {
  auto* const sums = static_cast<T*>(to);
  for (size_t i = 0; i < count; ++i) {
    T sum = reinterpret_cast<const T*>(group.ranks[first].piece)[i];
    for (int r = 1; r < size; ++r)
      sum += reinterpret_cast<const T*>(group.ranks[(first + r) % size].piece)[i];
    sums[i] = sum;
  }
}

void AddPieces(const Group& group, int size, int first, ncclDataType_t type, size_t count, void* to) {
  if (type == ncclFloat32) return AddPiecesOf<float>(group, size, first, count, to);
  if (type == ncclFloat64) return AddPiecesOf<double>(group, size, first, count, to);
  AddPiecesOf<int64_t>(group, size, first, count, to);
}

// With everybody's piece there: what this rank does with elements [begin, begin + count).
void TakePieces(const ncclComm& comm, const Operation& operation, size_t begin, size_t count, std::byte* to) {
  const Group& group = *comm.group;
  const size_t width = SizeOf(operation.type), part = operation.count / static_cast<size_t>(comm.size);
  const int first = static_cast<int>(begin * width / kPiece + 1) % comm.size;
  switch (operation.kind) {
    case Operation::kSend:
      if (comm.rank == operation.root) break;
      [[fallthrough]];
    case Operation::kBroadcast:
      std::memcpy(to + begin * width, group.ranks[operation.root].piece, count * width);
      break;
    case Operation::kReduce:
      if (comm.rank != operation.root) break;
      [[fallthrough]];
    case Operation::kAllReduce:
      AddPieces(group, comm.size, first, operation.type, count, to + begin * width);
      break;
    case Operation::kReduceScatter:
      if (begin / part != static_cast<size_t>(comm.rank)) break;
      AddPieces(group, comm.size, first, operation.type, count, to + begin % part * width);
      break;
    case Operation::kAllGather:
      std::memcpy(to + begin * width, group.ranks[begin / part].piece, count * width);
      break;
  }
}

// On a stream's thread.
void Run(ncclComm* comm, const Operation& operation, const void* from, void* to) {
  const std::scoped_lock lock(comm->one_at_a_time);
  if (comm->aborted.load()) return;
  const size_t width = SizeOf(operation.type);
  const bool parts = operation.kind == Operation::kReduceScatter || operation.kind == Operation::kAllGather;
  const size_t part = operation.count / static_cast<size_t>(comm->size);
  const size_t given = operation.kind == Operation::kAllGather ? part : operation.count;
  const size_t got = operation.kind == Operation::kReduceScatter ? part : operation.count;
  if (!InDeviceMemory(from, given * width) || !InDeviceMemory(to, got * width)) {
    return Fault(cudaErrorIllegalAddress, "an NCCL operation on memory that is not the device's");
  }
  Group& group = *comm->group;
  group.ranks[comm->rank].operation = operation;
  if (!comm->Barrier()) return;
  for (int r = 0; r < comm->size; ++r) {
    if (group.ranks[r].operation == operation) continue;
    return comm->Fail(ncclInvalidUsage, "ranks " + std::to_string(comm->rank) + " and " + std::to_string(r) +
                                            " are at different operations");
  }
  // A piece never has elements of two ranks' parts.
  const size_t most = kPiece / width;
  for (size_t begin = 0; begin < operation.count;) {
    const size_t end = parts ? (begin / part + 1) * part : operation.count;
    const size_t count = std::min(most, end - begin);
    const bool brings =
        operation.kind != Operation::kAllGather || begin / part == static_cast<size_t>(comm->rank);
    const size_t at = operation.kind == Operation::kAllGather ? begin % part : begin;
    if (brings) {
      std::memcpy(group.ranks[comm->rank].piece, static_cast<const std::byte*>(from) + at * width,
                  count * width);
    }
    if (!comm->Barrier()) return;
    TakePieces(*comm, operation, begin, count, static_cast<std::byte*>(to));
    if (!comm->Barrier()) return;
    begin += count;
  }
}

// Between ncclGroupStart and ncclGroupEnd operations are kept.
struct Call {
  ncclComm* comm;
  Operation operation;
  const void* from;
  void* to;
  cudaStream_t stream;
};
thread_local int depth = 0;
thread_local std::vector<Call> kept;

ncclResult_t EnqueueCall(const Call& call) {
  ncclComm* const comm = call.comm;
  if (comm->state.load() != ncclSuccess) {
    comm->Fail(ncclInvalidUsage, "an operation before the last call was through");
    return ncclInvalidUsage;
  }
  const cudaError_t enqueued =
      Enqueue(call.stream, "NCCL", [call] { Run(call.comm, call.operation, call.from, call.to); });
  if (enqueued != cudaSuccess) return ncclUnhandledCudaError;
  if (comm->used) return ncclSuccess;
  // With the first one NCCL connects, on a thread of its own.
  comm->used = true;
  comm->state.store(ncclInProgress);
  Behind(comm, [comm] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ncclResult_t in_progress = ncclInProgress;
    comm->state.compare_exchange_strong(in_progress, ncclSuccess);
  });
  return ncclInProgress;
}

ncclResult_t Ask(const Call& call) {
  if (SizeOf(call.operation.type) == 0) return ncclInvalidArgument;
  if (depth == 0) return EnqueueCall(call);
  kept.push_back(call);
  return ncclSuccess;
}

// NCCL from 2.30 on lets ranks share a GPU where the environment says so.
bool SharingAllowed() {
  const char* enabled = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return Version() >= NCCL_VERSION(2, 30, 0) && enabled != nullptr && std::string(enabled) == "1";
}

void Join(ncclComm* comm) {
  Rank& me = comm->group->ranks[comm->rank];
  const Device& device = Devices()[static_cast<size_t>(comm->device)];
  std::strncpy(me.uuid, device.uuid.c_str(), sizeof me.uuid - 1);
  me.physical = device.physical;
  me.joined.store(1);
  if (!comm->WaitForAll([](const Rank& each) { return each.joined.load() == 1; })) return;
  for (int r = 0; r < comm->size; ++r) {
    const Rank& other = comm->group->ranks[r];
    if (r == comm->rank || std::strcmp(other.uuid, me.uuid) != 0 || SharingAllowed()) continue;
    return comm->Fail(ncclInvalidUsage, "Duplicate GPU detected : rank " + std::to_string(comm->rank) +
                                            " and rank " + std::to_string(r) + " both on CUDA device " +
                                            me.uuid);
  }
  comm->state.store(ncclSuccess);
}

// Until nothing of it runs any more.
void WaitFor(ncclComm* comm) {
  while (comm->running.load() != 0) std::this_thread::sleep_for(kPause);
  const std::scoped_lock lock(comm->one_at_a_time);
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  *version = Version();
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  // Stays open while this process lives, for those who come.
  const int fd = MakeSharedFile(sizeof(Group));
  if (fd < 0) return ncclSystemError;
  const SharedFileName name = NameOf(fd, sizeof(Group), 0);
  static_assert(sizeof name <= sizeof id->internal);
  *id = {};
  std::memcpy(id->internal, &name, sizeof name);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  *comm = nullptr;
  // Only what our own code asks for.
  if (config == nullptr || config->magic != 0xcafebeef || config->blocking != 0) return ncclInvalidArgument;
  if (size < 1 || size > kMostRanks || rank < 0 || rank >= size) return ncclInvalidArgument;
  SharedFileName name;
  std::memcpy(&name, id.internal, sizeof name);
  const int fd = OpenSharedFile(name);
  if (fd < 0) return ncclSystemError;
  auto* const made = new ncclComm;
  made->rank = rank;
  made->size = size;
  made->device = CurrentDevice();
  made->group = Map(fd);
  ::close(fd);
  if (made->group == nullptr) {
    delete made;
    return ncclSystemError;
  }
  *comm = made;
  Behind(made, [made] { Join(made); });
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = comm->state.load();
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "internal error";
  }
}

const char* ncclGetLastError(ncclComm_t comm) {
  if (comm == nullptr) return "";
  const std::scoped_lock lock(comm->mutex);
  return comm->error.c_str();
}

ncclResult_t ncclCommRegister(const ncclComm_t, void* data, size_t bytes, void** handle) {
  *handle = nullptr;
  if (!InDeviceMemory(data, bytes) || Find(data).kind != MemoryKind::kDevice) return ncclInvalidArgument;
  *handle = data;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t, void* handle) {
  return handle == nullptr ? ncclInvalidArgument : ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (depth == 0) return ncclInvalidUsage;
  if (--depth > 0) return ncclSuccess;
  std::vector<Call> calls;
  calls.swap(kept);
  ncclResult_t result = ncclSuccess;
  for (size_t i = 0; i < calls.size(); ++i) {
    // A group is one call: only behind it may there be something in progress.
    calls[i].comm->used = calls[i].comm->used || i + 1 < calls.size();
    const ncclResult_t enqueued = EnqueueCall(calls[i]);
    if (enqueued != ncclSuccess) result = enqueued;
  }
  return result;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  if (op != ncclSum) return ncclInvalidArgument;
  return Ask({comm, {.kind = Operation::kAllReduce, .type = type, .count = count}, from, to, stream});
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  if (root < 0 || root >= comm->size) return ncclInvalidArgument;
  return Ask(
      {comm, {.kind = Operation::kBroadcast, .type = type, .root = root, .count = count}, from, to, stream});
}

ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream) {
  if (op != ncclSum || root < 0 || root >= comm->size) return ncclInvalidArgument;
  return Ask(
      {comm, {.kind = Operation::kReduce, .type = type, .root = root, .count = count}, from, to, stream});
}

// Between the two ranks of a group of two, which is all that our own code asks for: a broadcast that leaves
// out whom it comes from.
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  if (comm->size != 2 || peer != 1 - comm->rank) return ncclInvalidArgument;
  auto* const unused = const_cast<void*>(from);
  return Ask({comm,
              {.kind = Operation::kSend, .type = type, .root = comm->rank, .count = count},
              from,
              unused,
              stream});
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  if (comm->size != 2 || peer != 1 - comm->rank) return ncclInvalidArgument;
  return Ask({comm, {.kind = Operation::kSend, .type = type, .root = peer, .count = count}, to, to, stream});
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t part, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  if (op != ncclSum) return ncclInvalidArgument;
  const size_t count = part * static_cast<size_t>(comm->size);
  return Ask({comm, {.kind = Operation::kReduceScatter, .type = type, .count = count}, from, to, stream});
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t part, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const size_t count = part * static_cast<size_t>(comm->size);
  return Ask({comm, {.kind = Operation::kAllGather, .type = type, .count = count}, from, to, stream});
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (comm->state.load() != ncclSuccess) return ncclInvalidUsage;
  comm->state.store(ncclInProgress);
  Behind(comm, [comm] {
    comm->group->ranks[comm->rank].finalized.store(1);
    if (comm->WaitForAll([](const Rank& each) { return each.finalized.load() == 1; }))
      comm->state.store(ncclSuccess);
  });
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  WaitFor(comm);
  delete comm;
  return ncclSuccess;
}

// What is enqueued and has not run yet may still name the communicator: it stays, as an empty shell.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->aborted.store(true);
  WaitFor(comm);
  static std::mutex mutex;
  static auto* shells = new std::vector<ncclComm*>;  // never deleted: streams may run until the very end
  const std::lock_guard lock(mutex);
  shells->push_back(comm);
  return ncclSuccess;
}
