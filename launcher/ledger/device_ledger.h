#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "common/unique_fd.h"
#include "launcher/ledger/claim.h"

namespace lockstep::ledger {

// The ledger's folder on this machine, and what this launcher holds in it. In it are
//
//   lockstep-device-ID.lock           a lock file a device: held (flock) while claims on it are read or made
//   lockstep-device-ID.RANDOM.claim   a claim; its launcher keeps it locked (flock) for as long as it lives
//
// A claim that nobody has locked is of a launcher that died, and is taken no notice of, so that a crash
// leaves nothing to clean up. (Not the pid: pids are reused, and are other numbers in other containers.)
//
// All users of a machine share the folder, and none trusts another: each claim is a file of its own, made
// with O_EXCL by its user, whose name is taken from the file's owner; nothing is followed that is a link;
// files are read up to a limit. The folder is a root's with the sticky bit, so that nobody can remove or
// replace what is another's. What a user can still do is claim a whole device without using it, which is what
// --force is for.
class DeviceLedger {
 public:
  struct Options {
    std::string folder = {};  // as FolderFor() says
    std::string job = {};
    std::string namespace_name = {};
    bool force = false;  // claim it whether it fits or not
  };

  // `given` (LOCKSTEP_DEVICE_LEDGER): made if it is not there; kFailedPrecondition when others could replace
  // files in it. Empty: /run/lock, or /tmp where that is not for everybody; kNotFound when neither is.
  static Result<std::string> FolderFor(const std::string& given);

  // Claims all of `uses`, or none. kFailedPrecondition: one does not fit (CheckFits), or a file of the ledger
  // is not what it should be; with `force` both are only told in `overruled`. kDeadlineExceeded: another
  // launcher, or a stranger, keeps a device's lock for longer than five seconds.
  static Result<DeviceLedger> Acquire(const Options& options, const std::vector<Use>& uses,
                                      std::vector<std::string>& overruled);

  DeviceLedger(DeviceLedger&&) noexcept = default;
  DeviceLedger& operator=(DeviceLedger&& other) noexcept;
  // Gives the claims back.
  ~DeviceLedger();

 private:
  struct Held {
    std::string path;
    UniqueFd file;  // locked
  };
  DeviceLedger() = default;
  Status Add(const std::string& folder, const Claim& claim);
  void Release();

  std::vector<Held> held_;
};

// The live claims on `device`. The caller need not hold its lock, and then may miss one that is being made.
Result<std::vector<Claim>> ReadClaims(const std::string& folder, const std::string& device);

}  // namespace lockstep::ledger
