#pragma once

#include <string>
#include <variant>
#include <vector>

#include "launcher/rendezvous/coordinator.h"

namespace lockstep::rendezvous::testing {

// One word an action.
inline std::vector<std::string> Words(const Coordinator::Actions& actions) {
  struct Visitor {
    std::string operator()(const Coordinator::Start& a) const {
      std::string text = "start " + std::to_string(a.generation) + ":";
      for (const int processes : a.processes) text += " " + std::to_string(processes);
      return text;
    }
    std::string operator()(const Coordinator::Stop& a) const {
      const char* causes[] = {"failure", "peer lost", "terminate", "resize", "done"};
      return "stop " + std::to_string(a.what.generation) + ": " + causes[static_cast<int>(a.what.cause)];
    }
    std::string operator()(const Coordinator::Resume& a) const {
      return "resume " + std::to_string(a.replica) + " as " + std::to_string(a.incarnation);
    }
    std::string operator()(const Coordinator::RestartProcess& a) const {
      return "restart " + std::to_string(a.replica) + "/" + std::to_string(a.what.process) + " as " +
             std::to_string(a.what.incarnation);
    }
    std::string operator()(const Coordinator::AskOwner& a) const {
      return "ask about rank " + std::to_string(a.failure.rank);
    }
    std::string operator()(const Coordinator::NotePeerLost& a) const {
      return "lost " + std::to_string(a.replica);
    }
    std::string operator()(const Coordinator::Finish& a) const {
      return "finish " + std::to_string(a.exit_code);
    }
  };
  std::vector<std::string> words;
  for (const Coordinator::Action& action : actions) words.push_back(std::visit(Visitor{}, action));
  return words;
}

inline std::string MessageOf(const Coordinator::Actions& actions) {
  for (const Coordinator::Action& action : actions) {
    if (const auto* finish = std::get_if<Coordinator::Finish>(&action)) return finish->message;
    if (const auto* stop = std::get_if<Coordinator::Stop>(&action)) return stop->what.message;
  }
  return {};
}

inline FailureReport Failure(int replica, int rank, int exit_code, bool own_trainer = true) {
  return {.replica = replica, .rank = rank, .own_trainer = own_trainer, .exit_code = exit_code};
}

}  // namespace lockstep::rendezvous::testing
