#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/event_loop.h"
#include "launcher/process/child_process.h"
#include "launcher/process/supervisor.h"

namespace lockstep::job {

// How processes outlive a generation that failed (docs/contract.md, "Regrouping"; docs/adr/0008): asks those
// that said that they can, kills who does not answer, keeps those that did, and tells them of the next
// generation. Whether a generation is over, and what failed, is for its owner to say. On the loop's thread.
//
//   Started ─► Ready (each process, when it says so)
//           ─► Ask, Answered …                      the generation fails; Answered also before anybody asked
//           ─► Choose ─► (all_gone) ─► Started      the next one
class Regroup {
 public:
  struct Options {
    std::chrono::milliseconds answer_limit{5000};  // of one that was asked
    // How long a process that answered unasked leaves others the time to fail for a better reason.
    std::chrono::milliseconds unasked_limit{1000};
    // That time is over; on_lost_peers decides whether the process is what failed.
    std::function<void(int local_rank)> on_lost_peers;
    std::function<void(const std::string&)> say;
  };
  // A process of the coming generation.
  struct Place {
    process::Launch launch;
    std::map<std::string, std::string> environment;  // what one that goes on there is told
  };

  // Both outlive this.
  Regroup(EventLoop& loop, process::Supervisor& supervisor, Options options);
  ~Regroup();
  Regroup(const Regroup&) = delete;
  Regroup& operator=(const Regroup&) = delete;

  // A process is about to take its first step, and says whether it understands control lines.
  void Ready(int local_rank, bool regroups);
  // It holds `step` and waits. False, and not to be believed, of one that never said that it can, or that is
  // being stopped.
  bool Answered(int local_rank, int64_t step);
  void Ended(int local_rank);

  // The generation failed: asks all that can. Those that are to be spared: they answer in time, or are
  // killed.
  std::set<int> Ask();
  // The generation ends in another way: nobody is waited for any more. They are no longer to be spared.
  void GiveUp();

  // Who goes on in the generation of these places; the others that wait are killed.
  void Choose(std::vector<Place> places);
  // All that are not to go on have ended.
  bool all_gone() const;
  // Those that go on, by local rank.
  const std::set<int>& chosen() const { return chosen_; }
  // The supervisor has started the generation: those that go on are told. Also where none do.
  void Started();

  // None of those that wait now may go on: what all of them were started with has changed.
  void NobodyGoesOn();

  // "ranks 0, 2 and 3 keep what they hold (step 120) and wait"; empty: nobody does.
  std::string WhoWaits() const;

 private:
  struct Member {
    process::Launch launch;
    std::string line;       // for one that goes on
    bool regroups = false;  // it says that it can
    bool asked = false;
    bool parked = false;
    bool may_go_on = true;
    int64_t step = 0;
  };

  void AnswersAreDue();

  EventLoop& loop_;
  process::Supervisor& supervisor_;
  const Options options_;
  std::map<int, Member> members_;  // by local rank; what runs or waits
  std::vector<Place> places_;      // of the coming generation
  std::set<int> chosen_;
  EventLoop::TimerId answer_timer_ = 0;
  EventLoop::TimerId unasked_timer_ = 0;
};

}  // namespace lockstep::job
