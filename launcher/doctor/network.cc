#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>

#include "common/contract/connect.h"
#include "launcher/doctor/doctor.h"
#include "launcher/placement/text_files.h"

namespace lockstep::doctor {

namespace {

using contract::SocketAddress;

constexpr std::chrono::seconds kPatience{3};

bool IsLoopback(const SocketAddress& address) {
  const std::string host = address.host();
  return host.starts_with("127.") || host == "::1";
}

// "10.0.0.5, fd00::5; 25000 Mbit/s, MTU 9000" by interface: those that are up and lead somewhere.
std::map<std::string, std::string> Interfaces(const std::filesystem::path& root) {
  std::map<std::string, std::string> interfaces;
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return interfaces;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, &::freeifaddrs);
  for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
    const bool leads_somewhere = (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_LOOPBACK) == 0;
    if (!leads_somewhere || at->ifa_addr == nullptr) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    SocketAddress address;
    address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address.storage, at->ifa_addr, address.length);
    if (address.host().starts_with("fe80:")) continue;  // of the link alone
    std::string& text = interfaces[at->ifa_name];
    text += (text.empty() ? "" : ", ") + address.host();
  }
  for (auto& [name, text] : interfaces) {
    const std::filesystem::path folder = root / "sys/class/net" / name;
    const auto speed = placement::ReadInteger(folder / "speed");
    if (speed && *speed > 0) text += "; " + std::to_string(*speed) + " Mbit/s";
    if (const auto mtu = placement::ReadInteger(folder / "mtu")) text += "; MTU " + std::to_string(*mtu);
  }
  return interfaces;
}

Result<std::vector<SocketAddress>> LookUp(const contract::HostPort& target, contract::Deadline deadline) {
  const contract::NameLookup lookup(target);
  lookup.Wait(deadline);
  return lookup.Take();
}

// Programs that take the host's name for their address are not found by others where it is the loopback's.
Finding HostName() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  const std::string host = name.data();
  const auto addresses = LookUp({.host = host, .port = 1}, std::chrono::steady_clock::now() + kPatience);
  const std::string fix = "an entry in /etc/hosts or in DNS; Lockstep itself does not need it";
  if (!addresses.ok()) {
    return {Level::kWarning, "host name", host + " has no address: " + addresses.status().message(), fix};
  }
  const SocketAddress& address = addresses->front();
  if (!IsLoopback(address)) return {Level::kFine, "host name", host + " is " + address.host()};
  return {Level::kWarning, "host name",
          host + " is " + address.host() + ": programs of several machines that use it find only themselves",
          fix};
}

Finding Peer(const std::string& peer) {
  const auto target = contract::ParseHostPort(peer);
  if (!target.ok()) return {Level::kFault, "peer " + peer, target.status().message()};
  const auto start = std::chrono::steady_clock::now();
  const auto addresses = LookUp(*target, start + kPatience);
  if (!addresses.ok()) {
    return {Level::kFault, "peer " + peer, addresses.status().message(),
            "check its name, or give its address"};
  }
  Status last;
  for (const SocketAddress& address : *addresses) {
    const auto socket = contract::ConnectTo(address, start + kPatience);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (socket.ok()) {
      std::array<char, 32> text{};
      std::snprintf(text.data(), text.size(), "%.1f ms", took.count());
      return {Level::kFine, "peer " + peer, "answers from " + address.host() + " within " + text.data()};
    }
    last = socket.status();
  }
  return {
      Level::kFault, "peer " + peer, last.message(),
      "is something listening there (lockstep run --replica 0 --rendezvous :PORT), and does no firewall or "
      "NetworkPolicy forbid it?"};
}

}  // namespace

std::vector<Finding> ExamineNetwork(const Options& options) {
  std::vector<Finding> findings;
  for (const auto& [name, text] : Interfaces(options.root)) {
    findings.push_back({Level::kFine, "interface " + name, text});
  }
  if (findings.empty()) {
    findings.push_back({Level::kWarning, "interfaces", "none but the loopback: no job of several machines",
                        "docker run without --network none"});
  }
  findings.push_back(HostName());
  for (const std::string& peer : options.peers) findings.push_back(Peer(peer));
  return findings;
}

}  // namespace lockstep::doctor
