#pragma once

#include <gloo/rendezvous/store.h>

#include <chrono>
#include <string>
#include <vector>

#include "common/contract/store.h"

namespace lockstep::trainer::collectives {

// Our store as Gloo wants it: throws what a Status says, and every call ends at one deadline.
class StoreAdapter final : public gloo::rendezvous::Store {
 public:
  StoreAdapter(contract::Store& store, std::string prefix, contract::Store::Deadline deadline)
      : store_(store), prefix_(std::move(prefix)), deadline_(deadline) {}

  void set(const std::string& key, const std::vector<char>& data) override;
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  contract::Store& store_;
  std::string prefix_;
  contract::Store::Deadline deadline_;
};

}  // namespace lockstep::trainer::collectives
