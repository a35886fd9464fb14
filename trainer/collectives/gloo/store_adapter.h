#pragma once

#include <gloo/rendezvous/store.h>

#include <chrono>
#include <string>
#include <vector>

#include "common/contract/store.h"

namespace lockstep::trainer::collectives {

// Our store as Gloo wants it: throws what a Status says, and every call ends at one deadline. Gloo puts each
// rank's address under its number and connects with each rank as soon as it finds it; here its first wait is
// for all `size` of them. So nobody connects before all are there: those who gave up waiting for a missing
// one have connected with nobody, which matters because a peer that goes within the handshake makes Gloo's
// own thread throw, and that ends the process.
class StoreAdapter final : public gloo::rendezvous::Store {
 public:
  StoreAdapter(contract::Store& store, std::string prefix, int size, contract::Store::Deadline deadline)
      : store_(store), prefix_(std::move(prefix)), size_(size), deadline_(deadline) {}

  void set(const std::string& key, const std::vector<char>& data) override;
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  contract::Store& store_;
  std::string prefix_;
  int size_;
  contract::Store::Deadline deadline_;
};

}  // namespace lockstep::trainer::collectives
