#pragma once

#include <string>

#include "launcher/placement/assign.h"
#include "launcher/spec/training_job.h"

// What a job asks of this machine: the devices and the programs that come with Lockstep or with the driver.
namespace lockstep::job {

// NVIDIA's MPS control daemon; comes with the driver.
inline constexpr char kMpsControl[] = "nvidia-cuda-mps-control";

// A program that comes with this one, lockstep-trainer say: the path beside this one, else as the PATH has
// it.
std::string OwnProgram(const std::string& name);
inline constexpr char kTrainer[] = "lockstep-trainer";
inline constexpr char kPmixServer[] = "lockstep-pmix";

// The trainer's GPU backend, liblockstep-cuda.so: where LOCKSTEP_CUDA_PLUGIN of `environment` says, else in
// the folder of `trainer` or in ../lib from there. Empty: not there.
std::string FindCudaPlugin(const std::string& trainer, const placement::Environment& environment);

// A program of the PATH of `environment`, as an absolute path; `name` with a slash is itself. Empty: not
// there, or not executable.
std::string FindProgram(const std::string& name, const placement::Environment& environment);

// What AssignDevices needs to know of this machine for `role`, or for all of them where it is empty: reads
// the machine. The NVIDIA driver is asked only where a role could use a GPU.
placement::DeviceRequest RequestDevices(const spec::TrainingJob& job, const std::string& role,
                                        const placement::Environment& inherited);

}  // namespace lockstep::job
