#pragma once

// Exit codes of `lockstep run` and `lockstep-trainer` (docs/contract.md).
namespace lockstep::contract {

inline constexpr int kExitDone = 0;
inline constexpr int kExitUsage = 2;       // wrong usage or manifest
inline constexpr int kExitPermanent = 3;   // bad data, bad model: a restart would not help
inline constexpr int kExitSuperseded = 4;  // a newer one has taken this one's place, and it must not go on
inline constexpr int kExitRetryable = 10;  // 10–19: a restart may help
inline constexpr int kExitCollectiveLost = 11;  // a peer vanished in a collective
inline constexpr int kExitRendezvous = 12;      // the others were not found in time
inline constexpr int kExitDeviceLost = 13;
inline constexpr int kExitOutOfMemory = 14;
inline constexpr int kExitRetryableLast = 19;
inline constexpr int kExitCheckpointed = 75;  // asked to stop, checkpoint written
inline constexpr int kExitCannotExecute = 126;
inline constexpr int kExitNotFound = 127;
inline constexpr int kExitSignalBase = 128;  // 128 + n: ended by signal n

}  // namespace lockstep::contract
