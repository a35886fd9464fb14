#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "common/contract/store.h"
#include "trainer/backend/device_backend.h"
#include "trainer/collectives/communicator.h"
#include "trainer/collectives/device_communicator.h"

// What goes from one GPU to another and back: what is between two stages of a pipeline.
namespace lockstep::trainer::collectives {

struct DeviceLinkOptions {
  DeviceOps ops = DeviceOps::kNccl;  // all but NCCL go over peer access
  int lower_rank = 0;                // of the two, in the job; the other is the next one
  bool asks = false;                 // this is the lower one, which asks
  bool shared_devices = false;       // some ranks share a GPU
  size_t places = 1;                 // questions that may be unanswered at a time
  size_t question_bytes = 0;         // of a message at most
  size_t answer_bytes = 0;
  contract::Store* store = nullptr;       // used while connecting only
  std::string key;                        // of this link in the store
  std::string interface;                  // of the network, for NCCL; empty: its own choice
  Deadline deadline;                      // of connecting
  std::chrono::milliseconds timeout;      // of each wait of one process for the other, later
  InProcessSegments* segments = nullptr;  // ranks are threads of this process (tests)
};

// One end of a link. The lower rank sends questions, the other an answer to each, in their order; at most
// `places` questions are without an answer that their sender has received. That is all there is to keep
// places from being written over: who sends into one again has had the answer, or the next question, to what
// was there, on its host and on its device. So nobody's device, nor host, ever waits for a place.
//
// All work is in the order of the backend's compute stream: a message is of what is on it when it is sent,
// and whatever is enqueued after Receive has returned finds it. The bytes go along another stream, past what
// is computed meanwhile.
//
// Failure and threads: as of a DeviceCommunicator.
class DeviceLink {
 public:
  virtual ~DeviceLink() = default;

  virtual std::string description() const = 0;  // for the log: "peer access"
  // `from` lies in the device's memory, and stays as it is until the answer to it, or the question `places`
  // later, has been received. 0 bytes are a message too.
  virtual void Send(const void* from, size_t bytes) = 0;
  // Waits, on the host, at most until the other's host has sent it. The place where the message is, in the
  // device's memory: this end's to read and write until it sends its answer, or the question `places` later.
  virtual void* Receive(size_t bytes) = 0;
  // See DeviceCommunicator.
  virtual void Check() = 0;
  virtual void Finish(Deadline deadline) = 0;
  virtual void Abort() noexcept = 0;
};

}  // namespace lockstep::trainer::collectives
