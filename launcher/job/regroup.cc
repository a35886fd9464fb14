#include "launcher/job/regroup.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "common/contract/control_line.h"
#include "launcher/job/place.h"

namespace lockstep::job {

namespace {

// "rank 3", "ranks 0, 2 and 3".
std::string RankList(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

}  // namespace

Regroup::Regroup(EventLoop& loop, process::Supervisor& supervisor, Options options)
    : loop_(loop), supervisor_(supervisor), options_(std::move(options)) {}

Regroup::~Regroup() {
  loop_.Cancel(answer_timer_);
  loop_.Cancel(unasked_timer_);
}

void Regroup::Ready(int local_rank, bool regroups) {
  const auto it = members_.find(local_rank);
  if (it == members_.end()) return;
  it->second.regroups = regroups;
  if (regroups) supervisor_.MayPark(local_rank);
}

bool Regroup::Answered(int local_rank, int64_t step) {
  const auto it = members_.find(local_rank);
  if (it == members_.end() || !it->second.regroups || !supervisor_.Park(local_rank)) return false;
  Member& member = it->second;
  member.step = step;
  if (std::exchange(member.parked, true) || member.asked || unasked_timer_ != 0) return true;
  unasked_timer_ = loop_.After(options_.unasked_limit, [this, local_rank] {
    unasked_timer_ = 0;
    options_.on_lost_peers(local_rank);
  });
  return true;
}

void Regroup::Ended(int local_rank) {
  members_.erase(local_rank);
  chosen_.erase(local_rank);
}

std::set<int> Regroup::Ask() {
  loop_.Cancel(std::exchange(unasked_timer_, 0));
  const Result<std::string> line = contract::EncodeControl(contract::RegroupControl{});
  std::set<int> spared;
  bool some_asked = false;
  for (auto& [local_rank, member] : members_) {
    if (!member.regroups) continue;
    if (!member.parked && !member.asked) {
      member.asked = supervisor_.Tell(local_rank, *line);
      some_asked = some_asked || member.asked;
    }
    if (member.parked || member.asked) spared.insert(local_rank);
  }
  if (some_asked && answer_timer_ == 0) {
    answer_timer_ = loop_.After(options_.answer_limit, [this] {
      answer_timer_ = 0;
      AnswersAreDue();
    });
  }
  return spared;
}

void Regroup::AnswersAreDue() {
  std::vector<int> silent;
  for (const auto& [local_rank, member] : members_) {
    if (!member.asked || member.parked) continue;
    silent.push_back(member.launch.rank);
    supervisor_.Drop(local_rank);
  }
  if (silent.empty()) return;
  options_.say(RankList(silent) + (silent.size() == 1 ? " does" : " do") + " not answer and" +
               (silent.size() == 1 ? " is" : " are") + " started anew");
}

void Regroup::GiveUp() {
  loop_.Cancel(std::exchange(answer_timer_, 0));
  loop_.Cancel(std::exchange(unasked_timer_, 0));
}

void Regroup::Choose(std::vector<Place> places) {
  GiveUp();
  places_ = std::move(places);
  chosen_.clear();
  for (auto& [local_rank, member] : members_) {
    const auto place = std::find_if(
        places_.begin(), places_.end(),
        [local_rank = local_rank](const Place& it) { return it.launch.local_rank == local_rank; });
    const bool fits = member.parked && member.may_go_on && place != places_.end() &&
                      SamePlace(member.launch, place->launch);
    auto line = fits ? contract::EncodeControl(contract::GenerationControl{place->environment})
                     : Result<std::string>(InvalidArgument(""));
    if (line.ok()) {
      member.line = std::move(*line);
      chosen_.insert(local_rank);
    } else {
      supervisor_.Drop(local_rank);
    }
  }
}

bool Regroup::all_gone() const { return members_.size() == chosen_.size(); }

void Regroup::Started() {
  std::map<int, Member> before = std::exchange(members_, {});
  for (Place& place : std::exchange(places_, {})) {
    const int local_rank = place.launch.local_rank;
    Member& member = members_[local_rank];
    member.launch = std::move(place.launch);
    if (!chosen_.contains(local_rank)) continue;
    member.regroups = true;
    supervisor_.MayPark(local_rank);
    // Whoever reads so little that it cannot be told fails for it.
    if (!supervisor_.Tell(local_rank, before.at(local_rank).line)) supervisor_.Signal(local_rank, SIGKILL);
  }
  chosen_.clear();
}

void Regroup::NobodyGoesOn() {
  for (auto& [local_rank, member] : members_) member.may_go_on = false;
}

std::string Regroup::WhoWaits() const {
  std::vector<int> ranks;
  int64_t lowest = INT64_MAX, highest = 0;
  for (const auto& [local_rank, member] : members_) {
    if (!member.parked) continue;
    ranks.push_back(member.launch.rank);
    lowest = std::min(lowest, member.step);
    highest = std::max(highest, member.step);
  }
  if (ranks.empty()) return "";
  const bool one = ranks.size() == 1;
  return RankList(ranks) + (one ? " keeps what it holds (step " : " keep what they hold (step ") +
         std::to_string(lowest) + (lowest == highest ? "" : " to " + std::to_string(highest)) + ")" +
         (one ? " and waits" : " and wait");
}

}  // namespace lockstep::job
