#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"
#include "common/unique_fd.h"

// The sockets of replica 0 that have an address of their own.
namespace lockstep::rendezvous {

struct Listener {
  UniqueFd socket;   // non-blocking, not inherited by ranks
  std::string host;  // numeric; "::" or "0.0.0.0": all addresses
  uint16_t port = 0;
};

// Listens on HOST:PORT; an empty host is all addresses, IPv6 and IPv4 where the machine has both; port 0 any
// that is free. A port that connections of a program that ended still linger on can be had. May block for the
// lookup of a name, at most 5 s, and for who has the port, which may be about to end, 2 s. kUnavailable, with
// the address in the message, if it cannot be had.
Result<Listener> ListenOn(const std::string& address);

// The next connection, non-blocking, not inherited by ranks; an empty descriptor if there is none now.
// kResourceExhausted if the process or the machine is out of descriptors or memory.
Result<UniqueFd> AcceptFrom(int listener);

// Keeps a port, or several that follow one another, for programs that are yet to be started: MASTER_PORT of
// one generation, and those after it where each rank listens on one.
//
// A port is bound here, and not listened on, until this dies. Meanwhile the kernel gives it to nobody who
// asks for any free port, neither to listen nor to connect from; but whoever asks for this very port with
// SO_REUSEADDR, as the listeners of PyTorch, gRPC (JAX, TensorFlow) and Gloo do, gets it. A program that
// binds it without SO_REUSEADDR is refused, and another that asks for this very number is not kept away.
class PortReservation {
 public:
  // Several are taken below the range from which the kernel gives out ports: on the other machines, where
  // nobody keeps them, they are likely to be free too. kUnavailable: there are no `count` in a row.
  static Result<PortReservation> Create(int count = 1);

  // The first of them.
  uint16_t port() const { return port_; }

 private:
  std::vector<UniqueFd> sockets_;
  uint16_t port_ = 0;
};

}  // namespace lockstep::rendezvous
