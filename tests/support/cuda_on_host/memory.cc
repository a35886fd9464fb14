#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "tests/support/cuda_on_host/devices.h"
#include "tests/support/cuda_on_host/shared_file.h"
#include "tests/support/cuda_on_host/state.h"

namespace lockstep::cuda_on_host {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kAlignment = 256;  // of device memory: CUDA C++ Programming Guide, "Device Memory Accesses"
constexpr size_t kPoolGranularity = size_t{2} << 20;
// New memory up to this size is filled with NaNs; more would have to be there in fact.
constexpr size_t kFilled = size_t{64} << 20;

size_t RoundUp(size_t value, size_t to) { return (value + to - 1) / to * to; }

struct Allocation {
  MemoryKind kind = MemoryKind::kNone;
  int device = 0;
  std::byte* base = nullptr;
  size_t bytes = 0;
  std::byte* mapping = nullptr;
  size_t mapped = 0;  // without the page behind it
  int fd = -1;
  bool usable = true;       // a pool's: its allocation has run
  bool registered = false;  // the caller's memory
  bool freed = false;       // by the host; a pool's stays until the stream comes past
  CUmemPoolHandle_st* pool = nullptr;
  SharedFileName name;  // of an opened one
  int opens = 0;

  ~Allocation() {
    if (mapping != nullptr) ::munmap(mapping, mapped + kPage);
    if (fd >= 0) ::close(fd);
  }
};

struct Memory {
  std::mutex mutex;
  std::map<const std::byte*, std::shared_ptr<Allocation>> allocations;  // by base
  std::set<CUmemPoolHandle_st*> pools;
  std::vector<CUmemPoolHandle_st*> of_default;  // by device
  int refuse = 0;
};
Memory& All() {
  static auto* memory = new Memory;
  return *memory;
}

// Maps `bytes` so that they end, but for alignment, where a page begins that must not be touched.
std::shared_ptr<Allocation> Map(size_t bytes, MemoryKind kind, bool shared) {
  auto made = std::make_shared<Allocation>();
  const size_t rounded = RoundUp(bytes, kAlignment);
  const size_t mapped = RoundUp(rounded, kPage);
  void* place =
      ::mmap(nullptr, mapped + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) return nullptr;
  made->mapping = static_cast<std::byte*>(place);
  made->mapped = mapped;
  if (shared) made->fd = MakeSharedFile(mapped);
  if (shared && made->fd < 0) return nullptr;
  void* usable =
      ::mmap(place, mapped, PROT_READ | PROT_WRITE,
             MAP_FIXED | MAP_NORESERVE | (shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS), made->fd, 0);
  if (usable == MAP_FAILED) return nullptr;
  made->base = made->mapping + (mapped - rounded);
  made->bytes = bytes;
  made->kind = kind;
  made->device = CurrentDevice();
  if (bytes <= kFilled) std::memset(made->base, 0xff, rounded);
  return made;
}

// Of device memory, the context included. Memory::mutex held.
size_t Taken(int device) {
  size_t taken = kContextBytes;
  for (const auto& [base, allocation] : All().allocations) {
    if (allocation->kind == MemoryKind::kDevice && allocation->device == device) taken += allocation->bytes;
  }
  for (const CUmemPoolHandle_st* pool : All().pools) {
    if (pool->device == device) taken += pool->reserved;
  }
  return taken;
}

bool Fits(size_t bytes) {
  const size_t memory = Devices()[static_cast<size_t>(CurrentDevice())].memory;
  const size_t taken = Taken(CurrentDevice());
  return taken <= memory && bytes <= memory - taken;
}

bool RefusedOnce() {
  if (All().refuse == 0) return false;
  --All().refuse;
  return true;
}

// Memory::mutex held.
Allocation* Lookup(const void* pointer) {
  const auto* at = static_cast<const std::byte*>(pointer);
  auto after = All().allocations.upper_bound(at);
  if (after == All().allocations.begin()) return nullptr;
  Allocation* found = std::prev(after)->second.get();
  // One past the end too: an empty range may start there.
  return at <= found->base + found->bytes ? found : nullptr;
}

CUmemPoolHandle_st* DefaultPool(int device) {
  const auto index = static_cast<size_t>(device);
  if (All().of_default.size() <= index) All().of_default.resize(Devices().size());
  if (All().of_default[index] == nullptr) {
    All().of_default[index] = new CUmemPoolHandle_st{.device = device};
    All().pools.insert(All().of_default[index]);
  }
  return All().of_default[index];
}

bool Grow(CUmemPoolHandle_st& pool, size_t bytes) {
  const size_t needed = pool.used + bytes;
  if (needed > pool.reserved) {
    const size_t grown = RoundUp(needed, kPoolGranularity);
    if (!Fits(grown - pool.reserved)) return false;
    pool.reserved = grown;
  }
  pool.used = needed;
  pool.used_high = std::max(pool.used_high, pool.used);
  pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
  return true;
}

void TrimOne(CUmemPoolHandle_st& pool, uint64_t keep) {
  const uint64_t floor = std::max<uint64_t>(keep, RoundUp(pool.used, kPoolGranularity));
  pool.reserved = std::min(pool.reserved, floor);
}

}  // namespace

void RefuseAllocations(int count) {
  const std::scoped_lock lock(All().mutex);
  All().refuse = count;
}

int64_t AllocatedBytes() {
  const std::scoped_lock lock(All().mutex);
  int64_t bytes = 0;
  for (const auto& [base, allocation] : All().allocations) {
    if (allocation->kind == MemoryKind::kDevice || allocation->kind == MemoryKind::kPool) {
      bytes += static_cast<int64_t>(allocation->bytes);
    }
  }
  return bytes;
}

void TrimPools() {
  const std::scoped_lock lock(All().mutex);
  for (CUmemPoolHandle_st* pool : All().pools) TrimOne(*pool, pool->threshold);
}

MemoryPlace Find(const void* pointer) {
  const std::scoped_lock lock(All().mutex);
  const Allocation* found = Lookup(pointer);
  if (found == nullptr || !found->usable) return {};
  return {.kind = found->kind, .device = found->device, .base = found->base, .bytes = found->bytes};
}

MemoryPlace FindAllocated(const void* pointer) {
  const std::scoped_lock lock(All().mutex);
  const Allocation* found = Lookup(pointer);
  if (found == nullptr || found->freed) return {};
  return {.kind = found->kind, .device = found->device, .base = found->base, .bytes = found->bytes};
}

bool Reachable(const void* pointer, size_t bytes) {
  const MemoryPlace place = Find(pointer);
  if (place.kind == MemoryKind::kNone) return false;
  const auto offset =
      static_cast<size_t>(static_cast<const std::byte*>(pointer) - static_cast<const std::byte*>(place.base));
  return offset + bytes <= place.bytes;
}

bool InDeviceMemory(const void* pointer, size_t bytes) {
  return Find(pointer).kind != MemoryKind::kPinned && Reachable(pointer, bytes);
}

}  // namespace lockstep::cuda_on_host

using namespace lockstep::cuda_on_host;

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  *pointer = nullptr;
  if (const cudaError_t error = Usable()) return Return(error);
  if (const cudaError_t error = RefuseInCapture()) return Return(error);
  if (bytes == 0) return Return(cudaErrorInvalidValue);
  const std::scoped_lock lock(All().mutex);
  if (RefusedOnce() || !Fits(bytes)) return Return(cudaErrorMemoryAllocation);
  auto made = Map(bytes, MemoryKind::kDevice, true);
  if (made == nullptr) return Return(cudaErrorMemoryAllocation);
  *pointer = made->base;
  All().allocations.emplace(made->base, std::move(made));
  return cudaSuccess;
}

namespace {

cudaError_t FreeNow(void* pointer, std::initializer_list<MemoryKind> kinds) {
  if (const cudaError_t error = Usable()) return Return(error);
  if (const cudaError_t error = RefuseInCapture()) return Return(error);
  if (pointer == nullptr) return cudaSuccess;
  int device = 0;
  {
    const std::scoped_lock lock(All().mutex);
    const auto found = All().allocations.find(static_cast<std::byte*>(pointer));
    if (found == All().allocations.end() || found->second->freed ||
        std::find(kinds.begin(), kinds.end(), found->second->kind) == kinds.end()) {
      return Return(cudaErrorInvalidValue);
    }
    found->second->freed = true;
    device = found->second->device;
  }
  const cudaError_t waited = WaitForDevice(device);
  const std::scoped_lock lock(All().mutex);
  const auto found = All().allocations.find(static_cast<std::byte*>(pointer));
  if (found->second->pool != nullptr) found->second->pool->used -= RoundUp(found->second->bytes, 512);
  All().allocations.erase(found);
  return Return(waited);
}

}  // namespace

cudaError_t cudaFree(void* pointer) { return FreeNow(pointer, {MemoryKind::kDevice, MemoryKind::kPool}); }

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  *pointer = nullptr;
  if (const cudaError_t error = Usable()) return Return(error);
  if (const cudaError_t error = RefuseInCapture()) return Return(error);
  if (bytes == 0) return Return(cudaErrorInvalidValue);
  const std::scoped_lock lock(All().mutex);
  auto made = Map(bytes, MemoryKind::kPinned, false);
  if (made == nullptr) return Return(cudaErrorMemoryAllocation);
  *pointer = made->base;
  All().allocations.emplace(made->base, std::move(made));
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes) { return cudaHostAlloc(pointer, bytes, 0); }

cudaError_t cudaFreeHost(void* pointer) {
  {
    const std::scoped_lock lock(All().mutex);
    const auto found = All().allocations.find(static_cast<std::byte*>(pointer));
    if (found != All().allocations.end() && found->second->registered) return Return(cudaErrorInvalidValue);
  }
  return FreeNow(pointer, {MemoryKind::kPinned});
}

// Memory that the caller has from elsewhere; whole pages.
cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned) {
  if (const cudaError_t error = Usable()) return Return(error);
  if (const cudaError_t error = RefuseInCapture()) return Return(error);
  if (bytes == 0 || pointer == nullptr) return Return(cudaErrorInvalidValue);
  auto* base = static_cast<std::byte*>(pointer);
  const std::scoped_lock lock(All().mutex);
  for (const auto& [other, allocation] : All().allocations) {
    if (base < other + allocation->bytes && other < base + bytes) {
      return Return(cudaErrorHostMemoryAlreadyRegistered);
    }
  }
  auto made = std::make_shared<Allocation>();
  made->kind = MemoryKind::kPinned;
  made->device = CurrentDevice();
  made->base = base;
  made->bytes = bytes;
  made->registered = true;
  All().allocations.emplace(base, std::move(made));
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* pointer) {
  {
    const std::scoped_lock lock(All().mutex);
    const auto found = All().allocations.find(static_cast<std::byte*>(pointer));
    if (found == All().allocations.end() || !found->second->registered) {
      return Return(cudaErrorHostMemoryNotRegistered);
    }
  }
  return FreeNow(pointer, {MemoryKind::kPinned});
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  if (FindAllocated(host).kind != MemoryKind::kPinned) return Return(cudaErrorInvalidValue);
  *device = host;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  if (const cudaError_t error = Usable()) return Return(error);
  const std::scoped_lock lock(All().mutex);
  *total = Devices()[static_cast<size_t>(CurrentDevice())].memory;
  *free = *total - std::min(*total, Taken(CurrentDevice()));
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  if (const cudaError_t error = Usable()) return Return(error);
  const MemoryPlace place = FindAllocated(pointer);
  *attributes = {};
  attributes->type = place.kind == MemoryKind::kNone     ? cudaMemoryTypeUnregistered
                     : place.kind == MemoryKind::kPinned ? cudaMemoryTypeHost
                                                         : cudaMemoryTypeDevice;
  attributes->device = place.kind == MemoryKind::kNone ? -2 : place.device;
  void* same = const_cast<void*>(pointer);
  if (place.kind != MemoryKind::kNone) attributes->devicePointer = same;
  if (place.kind == MemoryKind::kPinned || place.kind == MemoryKind::kNone) attributes->hostPointer = same;
  return cudaSuccess;
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  if (const cudaError_t error = Usable()) return Return(error);
  if (properties->allocType != cudaMemAllocationTypePinned ||
      properties->location.type != cudaMemLocationTypeDevice ||
      static_cast<size_t>(properties->location.id) >= Devices().size() ||
      properties->handleTypes != cudaMemHandleTypeNone) {
    return Return(cudaErrorInvalidValue);
  }
  const std::scoped_lock lock(All().mutex);
  *pool = new CUmemPoolHandle_st{.device = properties->location.id};
  All().pools.insert(*pool);
  return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  const std::scoped_lock lock(All().mutex);
  if (!All().pools.contains(pool)) return Return(cudaErrorInvalidValue);
  // What is still in use stays until it is freed; the handle is kept for it.
  pool->threshold = 0;
  TrimOne(*pool, 0);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  if (const cudaError_t error = Usable()) return Return(error);
  const std::scoped_lock lock(All().mutex);
  *pool = DefaultPool(device);
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  const std::scoped_lock lock(All().mutex);
  const uint64_t number = *static_cast<uint64_t*>(value);
  switch (attribute) {
    case cudaMemPoolAttrReleaseThreshold:
      pool->threshold = number;
      return cudaSuccess;
    case cudaMemPoolAttrUsedMemHigh:
    case cudaMemPoolAttrReservedMemHigh:
      if (number != 0) return Return(cudaErrorInvalidValue);
      (attribute == cudaMemPoolAttrUsedMemHigh ? pool->used_high : pool->reserved_high) = 0;
      return cudaSuccess;
    default:
      return Return(cudaErrorInvalidValue);
  }
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  const std::scoped_lock lock(All().mutex);
  auto& number = *static_cast<uint64_t*>(value);
  switch (attribute) {
    case cudaMemPoolAttrReleaseThreshold:
      number = pool->threshold;
      return cudaSuccess;
    case cudaMemPoolAttrUsedMemCurrent:
      number = pool->used;
      return cudaSuccess;
    case cudaMemPoolAttrUsedMemHigh:
      number = pool->used_high;
      return cudaSuccess;
    case cudaMemPoolAttrReservedMemCurrent:
      number = pool->reserved;
      return cudaSuccess;
    case cudaMemPoolAttrReservedMemHigh:
      number = pool->reserved_high;
      return cudaSuccess;
    default:
      return Return(cudaErrorInvalidValue);
  }
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
  if (const cudaError_t error = Usable()) return Return(error);
  const std::scoped_lock lock(All().mutex);
  TrimOne(*pool, keep);
  return cudaSuccess;
}

cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  *pointer = nullptr;
  if (const cudaError_t error = Usable()) return Return(error);
  // In a capture this would be memory of the graph, which nothing of ours wants.
  if (const cudaError_t error = RefuseInCapture()) return Return(error);
  if (bytes == 0) return Return(cudaErrorInvalidValue);
  std::shared_ptr<Allocation> made;
  {
    const std::scoped_lock lock(All().mutex);
    if (RefusedOnce() || !Grow(*pool, RoundUp(bytes, 512))) return Return(cudaErrorMemoryAllocation);
    made = Map(bytes, MemoryKind::kPool, false);
    if (made == nullptr) return Return(cudaErrorMemoryAllocation);
    made->pool = pool;
    made->device = pool->device;
    made->usable = false;
    All().allocations.emplace(made->base, made);
  }
  *pointer = made->base;
  return Return(EnqueueWork(stream, {.what = "allocate",
                                     .run =
                                         [made] {
                                           const std::scoped_lock lock(All().mutex);
                                           made->usable = true;
                                         },
                                     .kind = WorkKind::kRunAlways}));
}

cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
  cudaMemPool_t pool = nullptr;
  if (const cudaError_t error = cudaDeviceGetDefaultMemPool(&pool, CurrentDevice())) return error;
  return cudaMallocFromPoolAsync(pointer, bytes, pool, stream);
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  if (const cudaError_t error = Usable()) return Return(error);
  if (const cudaError_t error = RefuseInCapture()) return Return(error);
  {
    const std::scoped_lock lock(All().mutex);
    const auto found = All().allocations.find(static_cast<std::byte*>(pointer));
    if (found == All().allocations.end() || found->second->kind != MemoryKind::kPool ||
        found->second->freed) {
      return Return(cudaErrorInvalidValue);
    }
    found->second->freed = true;
    // The next allocation on the stream may have it at once, though the work before is still to run.
    found->second->pool->used -= RoundUp(found->second->bytes, 512);
  }
  return Return(EnqueueWork(stream, {.what = "free",
                                     .run =
                                         [pointer] {
                                           const std::scoped_lock lock(All().mutex);
                                           All().allocations.erase(static_cast<std::byte*>(pointer));
                                         },
                                     .kind = WorkKind::kRunAlways}));
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  if (const cudaError_t error = Usable()) return Return(error);
  const std::scoped_lock lock(All().mutex);
  const auto found = All().allocations.find(static_cast<std::byte*>(pointer));
  // Only the start of memory of cudaMalloc: a pool's is shared in another way.
  if (found == All().allocations.end() || found->second->kind != MemoryKind::kDevice) {
    return Return(cudaErrorInvalidValue);
  }
  const Allocation& of = *found->second;
  *handle = {};
  const SharedFileName name = NameOf(of.fd, of.mapped, static_cast<size_t>(of.base - of.mapping));
  const int physical = Devices()[static_cast<size_t>(of.device)].physical;
  static_assert(sizeof name + sizeof physical <= sizeof handle->reserved);
  std::memcpy(handle->reserved, &name, sizeof name);
  std::memcpy(handle->reserved + sizeof name, &physical, sizeof physical);
  return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned flags) {
  *pointer = nullptr;
  if (const cudaError_t error = Usable()) return Return(error);
  if (const cudaError_t error = RefuseInCapture()) return Return(error);
  if (flags != cudaIpcMemLazyEnablePeerAccess) return Return(cudaErrorInvalidValue);
  SharedFileName name;
  std::memcpy(&name, handle.reserved, sizeof name);
  if (name.process == ::getpid()) return Return(cudaErrorDeviceUninitialized);  // as the driver has it
  int physical = 0;
  std::memcpy(&physical, handle.reserved + sizeof name, sizeof physical);
  if (!PeersReach(Devices()[static_cast<size_t>(CurrentDevice())].physical, physical)) {
    return Return(cudaErrorPeerAccessUnsupported);
  }
  const std::scoped_lock lock(All().mutex);
  for (const auto& [base, allocation] : All().allocations) {
    if (allocation->kind == MemoryKind::kOpened && allocation->name.process == name.process &&
        allocation->name.inode == name.inode && allocation->name.fd == name.fd) {
      ++allocation->opens;
      *pointer = allocation->base;
      return cudaSuccess;
    }
  }
  auto opened = std::make_shared<Allocation>();
  opened->fd = OpenSharedFile(name);
  if (opened->fd < 0) return Return(cudaErrorMapBufferObjectFailed);
  void* place =
      ::mmap(nullptr, name.bytes + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) return Return(cudaErrorMapBufferObjectFailed);
  opened->mapping = static_cast<std::byte*>(place);
  opened->mapped = name.bytes;
  if (::mmap(place, name.bytes, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_SHARED, opened->fd, 0) ==
      MAP_FAILED) {
    return Return(cudaErrorMapBufferObjectFailed);
  }
  opened->kind = MemoryKind::kOpened;
  opened->device = CurrentDevice();
  opened->base = opened->mapping + name.offset;
  opened->bytes = name.bytes - name.offset;
  opened->name = name;
  opened->opens = 1;
  *pointer = opened->base;
  All().allocations.emplace(opened->base, std::move(opened));
  return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void* pointer) {
  if (const cudaError_t error = Usable()) return Return(error);
  if (const cudaError_t error = RefuseInCapture()) return Return(error);
  const std::scoped_lock lock(All().mutex);
  const auto found = All().allocations.find(static_cast<std::byte*>(pointer));
  if (found == All().allocations.end() || found->second->kind != MemoryKind::kOpened) {
    return Return(cudaErrorInvalidValue);
  }
  if (--found->second->opens == 0) All().allocations.erase(found);
  return cudaSuccess;
}
