#include "trainer/collectives/nccl/nccl_group.h"

#include <cstdlib>
#include <cstring>
#include <future>
#include <thread>

#include "trainer/backend/cuda/check.h"
#include "trainer/error.h"

namespace lockstep::trainer::collectives {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kSharesGpus = NCCL_VERSION(2, 30, 0);  // from here on, when the environment asks for it
constexpr auto kPoll = std::chrono::microseconds(50);
// ncclCommAbort has been seen to hang when memory had run out.
constexpr auto kAbort = milliseconds(2000);

std::string VersionOf(int code) {
  return std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) + "." +
         std::to_string(code % 100);
}

std::string Describe(const std::string& operation, ncclResult_t result, ncclComm_t comm) {
  std::string text = operation + ": NCCL: " + ncclGetErrorString(result);
  if (const char* last = ncclGetLastError(comm); last != nullptr && *last != '\0') {
    text += std::string(": ") + last;
  }
  return text;
}

[[noreturn]] void Throw(const std::string& operation, ncclResult_t result, ncclComm_t comm) {
  const std::string what = Describe(operation, result, comm);
  if (result == ncclUnhandledCudaError) throw DeviceLost(what);
  if (result == ncclInvalidUsage || result == ncclInvalidArgument) throw Unsupported(what);
  throw CollectiveLost(what);
}

bool Failed(ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; }

}  // namespace

NcclGroup::NcclGroup(const DeviceCommunicatorOptions& options, DeviceBackend& backend)
    : options_(options), device_(backend.identity().ordinal) {
  Must(ncclGetVersion(&version_), "asking its version");
  SetEnvironment();
  MakeCurrent();
  const ncclUniqueId id = MeetTheOthers();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  try {
    Must(ncclCommInitRankConfig(&comm_, options_.size, id, options_.rank, &config), "connecting");
    Settle("connecting", options_.deadline);
  } catch (const CollectiveLost& lost) {
    Abort();
    throw RendezvousFailed(lost.what());
  } catch (...) {
    Abort();
    throw;
  }
}

std::string NcclGroup::description() const { return "NCCL " + VersionOf(version_); }

void NcclGroup::Enqueue(const char* operation, const Call& call, Stream stream) {
  const std::lock_guard lock(using_);
  ThrowIfAborted();
  MakeCurrent();
  Must(call(comm_, static_cast<cudaStream_t>(stream)), operation);
  Settle(operation, Clock::now() + options_.timeout);
}

void NcclGroup::Register(void* data, size_t bytes, Deadline deadline) {
  const std::lock_guard lock(using_);
  ThrowIfAborted();
  void* handle = nullptr;
  if (Failed(ncclCommRegister(comm_, data, bytes, &handle))) return;
  Settle("registering memory", deadline);
  if (handle != nullptr) registered_.push_back(handle);
}

void NcclGroup::Check(const char* operation) {
  const std::lock_guard lock(using_);
  ThrowIfAborted();
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  if (Failed(asked)) Throw(operation, asked, comm_);
  if (Failed(state)) Throw(operation, state, comm_);
}

void NcclGroup::Finish(Deadline deadline) {
  const std::lock_guard lock(using_);
  ThrowIfAborted();
  for (void* handle : registered_) Must(ncclCommDeregister(comm_, handle), "letting go of memory");
  registered_.clear();
  Must(ncclCommFinalize(comm_), "finishing");
  Settle("finishing", deadline);
  Must(ncclCommDestroy(comm_), "finishing");
  comm_ = nullptr;
}

// Once. NCCL gives up its kernels, so that the stream moves on; not longer than kAbort, since it may hang.
void NcclGroup::Abort() noexcept {
  if (aborted_.exchange(true)) return;
  try {
    // Whoever is in a call polls, and looks whether it is to end.
    const std::unique_lock lock(using_, kAbort);
    if (comm_ == nullptr) return;
    std::promise<void> done;
    std::future<void> aborted = done.get_future();
    std::thread([comm = comm_, device = device_, done = std::move(done)]() mutable {
      LOCKSTEP_CUDA_NOTHROW(cudaSetDevice(device));
      static_cast<void>(ncclCommAbort(comm));
      done.set_value();
    }).detach();
    aborted.wait_for(kAbort);
  } catch (...) {
    // No thread to be had: the process ends soon anyway.
  }
}

void NcclGroup::MakeCurrent() const { LOCKSTEP_CUDA(cudaSetDevice(device_)); }

void NcclGroup::Must(ncclResult_t result, const std::string& operation) const {
  if (Failed(result)) Throw(operation, result, comm_);
}

void NcclGroup::ThrowIfAborted() const {
  if (aborted_.load()) throw CollectiveLost("NCCL: this rank has given up");
}

// NCCL reads it when a communicator is made.
void NcclGroup::SetEnvironment() const {
  if (!options_.interface.empty()) {
    ::setenv("NCCL_SOCKET_IFNAME", ("=" + options_.interface).c_str(), /*overwrite=*/0);
  }
  if (!options_.shared_devices) return;
  if (version_ < kSharesGpus) {
    throw Unsupported("NCCL " + VersionOf(version_) +
                      " does not let several ranks share a GPU (2.30 does); HierarchicalCopy would be right");
  }
  ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", /*overwrite=*/0);
}

// Rank 0's name for the group, when all have come: NCCL itself would not say who has not.
ncclUniqueId NcclGroup::MeetTheOthers() const {
  const auto check = [](const Status& status) {
    if (!status.ok()) throw RendezvousFailed("NCCL: " + status.message());
  };
  ncclUniqueId id{};
  const std::string key = options_.key + "/nccl";
  if (options_.rank == 0) {
    Must(ncclGetUniqueId(&id), "naming the group");
    check(options_.store->Set(key, std::string_view(id.internal, sizeof id.internal), options_.deadline));
  }
  std::vector<std::string> keys;
  for (int r = 0; r < options_.size; ++r) keys.push_back(key + "/" + std::to_string(r));
  check(options_.store->Set(keys[static_cast<size_t>(options_.rank)], "1", options_.deadline));
  check(options_.store->Wait(keys, options_.deadline));
  const Result<std::string> name = options_.store->Get(key, options_.deadline);
  check(name.status());
  if (name->size() != sizeof id.internal) throw RendezvousFailed("NCCL: the group's name is torn");
  std::memcpy(id.internal, name->data(), sizeof id.internal);
  return id;
}

// Until what was asked of NCCL last is under way.
void NcclGroup::Settle(const std::string& operation, Deadline deadline) const {
  while (true) {
    ncclResult_t state = ncclSuccess;
    Must(ncclCommGetAsyncError(comm_, &state), operation);
    if (Failed(state)) Throw(operation, state, comm_);
    if (state == ncclSuccess) return;
    ThrowIfAborted();
    if (Clock::now() >= deadline) {
      throw CollectiveLost(operation + ": NCCL: rank " +
                           std::to_string(options_.first_rank + options_.rank * options_.rank_stride) +
                           " waited in vain for the others until the deadline");
    }
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace lockstep::trainer::collectives
