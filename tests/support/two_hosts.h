#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace lockstep::testing {

// Two hosts with one cable between them: network namespaces of this test's own, 10.77.0.1 and 10.77.0.2.
// Needs root.
class TwoHosts {
 public:
  TwoHosts() {
    ok_ = true;
    for (int host = 0; host < 2; ++host) Do("ip netns add " + Name(host));
    Do("ip link add veth0 netns " + Name(0) + " type veth peer name veth0 netns " + Name(1));
    for (int host = 0; host < 2; ++host) {
      Do("ip -n " + Name(host) + " addr add " + Address(host) + "/24 dev veth0");
      Do("ip -n " + Name(host) + " link set lo up");
      Do("ip -n " + Name(host) + " link set veth0 up");
    }
  }
  ~TwoHosts() {
    for (int host = 0; host < 2; ++host) Do("ip netns del " + Name(host));
  }
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  bool ok() const { return ok_; }
  // In front of a command that is to run there.
  std::vector<std::string> On(int host) const { return {"nsenter", "--net=/run/netns/" + Name(host)}; }
  std::string Address(int host) const { return "10.77.0." + std::to_string(host + 1); }
  void Cut() { Do("ip -n " + Name(1) + " link set veth0 down"); }
  void Mend() { Do("ip -n " + Name(1) + " link set veth0 up"); }

 private:
  std::string Name(int host) const {
    return "lockstep-" + std::to_string(::getpid()) + "-" + std::to_string(host);
  }
  void Do(const std::string& command) { ok_ = std::system((command + " 2>/dev/null").c_str()) == 0 && ok_; }

  bool ok_ = false;
};

}  // namespace lockstep::testing
