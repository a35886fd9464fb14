#include "trainer/backend/cuda/handles.h"

namespace lockstep::trainer::cuda {

CudaStream MakeStream(int priority) {
  CudaStream stream;
  LOCKSTEP_CUDA(cudaStreamCreateWithPriority(stream.Receive(), cudaStreamNonBlocking, priority));
  return stream;
}

int HighestPriority() {
  int lowest = 0;
  int highest = 0;
  LOCKSTEP_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  return highest;
}

CudaEvent MakeEvent(unsigned flags) {
  CudaEvent event;
  LOCKSTEP_CUDA(cudaEventCreateWithFlags(event.Receive(), flags));
  return event;
}

}  // namespace lockstep::trainer::cuda
