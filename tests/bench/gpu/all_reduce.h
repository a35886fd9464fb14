#pragma once

namespace lockstep::bench {

// Sums of buffers of several sizes over the ranks, as one of them; started by `lockstep run` as a program.
// Rank 0 prints a line a size: bytes, seconds, and bytes of device memory read and written a second, where a
// sum over N ranks in one memory has to read N buffers and write N. `ops`: NCCL, HierarchicalCopy,
// ReductionToOneDevice.
void MeasureAllReduce(const char* ops);

}  // namespace lockstep::bench
