#include "trainer/collectives/local/cuda_peers.h"

#include <unistd.h>

#include <span>
#include <thread>

#include "trainer/backend/cuda/memory.h"

namespace lockstep::trainer::collectives::cuda {

using trainer::cuda::CudaEvent;

PinnedSegment Pin(const SharedSegment& segment) {
  PinnedSegment pinned;
  const cudaError_t error = cudaHostRegister(segment.data(), segment.size(), cudaHostRegisterPortable);
  if (error == cudaErrorHostMemoryAlreadyRegistered) {
    cudaGetLastError();  // by another rank that is a thread of this process
    return pinned;
  }
  LOCKSTEP_CUDA(error);
  pinned.Reset(segment.data());
  return pinned;
}

SharedEvents::SharedEvents(LocalGroup& group, std::string_view name, size_t count, Deadline deadline)
    : count_(count) {
  struct Shared {
    int pid;
    cudaEvent_t event;
    cudaIpcEventHandle_t handle;
  };
  const size_t all = static_cast<size_t>(group.size()) * count;
  const SharedSegment segment = group.CreateSegment(name, all * sizeof(Shared), deadline);
  const std::span<Shared> shared = segment.View<Shared>(0, all);
  const size_t first = static_cast<size_t>(group.rank()) * count;
  for (Shared& mine : shared.subspan(first, count)) {
    owned_.push_back(trainer::cuda::MakeEvent(cudaEventDisableTiming | cudaEventInterprocess));
    mine = {.pid = ::getpid(), .event = owned_.back().get(), .handle = {}};
    LOCKSTEP_CUDA(cudaIpcGetEventHandle(&mine.handle, mine.event));
  }
  group.Barrier("sharing events", deadline);
  for (const Shared& each : shared) {
    if (each.pid == ::getpid()) {
      events_.push_back(each.event);
      continue;
    }
    LOCKSTEP_CUDA(cudaIpcOpenEventHandle(owned_.emplace_back().Receive(), each.handle));
    events_.push_back(owned_.back().get());
  }
  group.Barrier("sharing events", deadline);
}

struct alignas(64) Peers::Member {
  std::atomic<uint64_t> meetings;  // come to
  std::atomic<uint64_t> waits;     // meetings for whose events it has made its streams wait
  // Written by the member between two barriers, read by the others behind the second.
  alignas(64) int pid;
  int device;  // in its process
  void* memory;
  trainer::cuda::MemoryToShare shared;
  int unreachable;  // 1 + a rank whose memory it could not open; 0: none
  cudaError_t why;  // then
};

Peers::Peers(LocalGroup& group, int device, Deadline deadline)
    : group_(group),
      device_(device),
      segment_(group.CreateSegment("peers", sizeof(Member) * static_cast<size_t>(group.size()), deadline)),
      members_(segment_.View<Member>(0, static_cast<size_t>(group.size())).data()),
      events_(group, "meeting-events", 2, deadline) {
  Member& me = members_[group.rank()];
  me.pid = ::getpid();
  me.device = device;
}

// A rank that is a thread of this process has no handle of its own to the events: it may be about to use
// them.
Peers::~Peers() {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  for (int r = 0; r < group_.size(); ++r) {
    if (r == group_.rank() || members_[r].pid != members_[group_.rank()].pid) continue;
    while (members_[r].waits.load() < meetings_ && std::chrono::steady_clock::now() < give_up) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

// An event is recorded again two meetings later: by then every rank has been at the one in between, so it had
// made its wait for this one's record.
void Peers::Meet(std::string_view operation, cudaStream_t stream, Deadline deadline) {
  const uint64_t meeting = ++meetings_;
  const size_t turn = meeting % 2;
  LOCKSTEP_CUDA(cudaEventRecord(events_.of(group_.rank(), turn), stream));
  members_[group_.rank()].meetings.store(meeting);
  group_.Wake();
  const auto missing = [&](int r) { return members_[r].meetings.load() < meeting; };
  const auto look = [&] {
    for (int r = 0; r < group_.size(); ++r) {
      if (missing(r)) return LocalGroup::Look::kIdle;
    }
    return LocalGroup::Look::kDone;
  };
  group_.Wait(operation, look, missing, deadline);
  for (int r = 0; r < group_.size(); ++r) {
    if (r != group_.rank()) LOCKSTEP_CUDA(cudaStreamWaitEvent(stream, events_.of(r, turn), 0));
  }
  members_[group_.rank()].waits.store(meeting);
}

std::vector<void*> Peers::Open(void* mine, Deadline deadline, std::string* why) {
  Member& me = members_[group_.rank()];
  me.memory = mine;
  me.unreachable = 0;
  me.shared = trainer::cuda::ShareMemory(mine);
  group_.Barrier("sharing device memory", deadline);
  std::vector<void*> opened;
  for (int r = 0; r < group_.size(); ++r) {
    cudaError_t error = cudaSuccess;
    opened.push_back(OpenOne(members_[r], &error));
    if (error == cudaSuccess) continue;
    cudaGetLastError();  // it is no failure of a later call
    me.unreachable = 1 + r;
    me.why = error;
  }
  group_.Barrier("sharing device memory", deadline);
  for (int r = 0; r < group_.size() && !opened.empty(); ++r) {
    const Member& member = members_[r];
    if (member.unreachable == 0) continue;
    *why = "rank " + std::to_string(r) + " cannot reach the memory of rank " +
           std::to_string(member.unreachable - 1) + ": " + cudaGetErrorName(member.why);
    opened.clear();
  }
  group_.Barrier("sharing device memory", deadline);
  return opened;
}

// Within one process memory has one address everywhere; another device's must be made accessible.
void* Peers::OpenOne(const Member& peer, cudaError_t* error) {
  if (peer.pid != members_[group_.rank()].pid) {
    OpenedMemory memory;
    *error = cudaIpcOpenMemHandle(memory.Receive(), peer.shared.allocation, cudaIpcMemLazyEnablePeerAccess);
    if (*error != cudaSuccess) return nullptr;
    char* const allocation = static_cast<char*>(memory.get());
    opened_memory_.push_back(std::move(memory));
    return allocation + peer.shared.offset;
  }
  if (peer.device != device_) {
    int can = 0;
    *error = cudaDeviceCanAccessPeer(&can, device_, peer.device);
    if (*error == cudaSuccess && can == 0) *error = cudaErrorPeerAccessUnsupported;
    if (*error == cudaSuccess) *error = cudaDeviceEnablePeerAccess(peer.device, 0);
    if (*error == cudaErrorPeerAccessAlreadyEnabled) {
      cudaGetLastError();
      *error = cudaSuccess;
    }
  }
  return peer.memory;
}

void Peers::Close(Deadline deadline) {
  opened_memory_.clear();
  group_.Barrier("closing the others' memory", deadline);
}

}  // namespace lockstep::trainer::collectives::cuda
