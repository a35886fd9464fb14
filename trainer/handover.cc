#include "trainer/handover.h"

#include <algorithm>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/log.h"
#include "trainer/error.h"
#include "trainer/strategy/shares.h"

namespace lockstep::trainer {

namespace {

// What goes ahead of the state. (A board is what parameter servers have, and they do not hand over.)
struct Header {
  int64_t step = 0;
  data::Position data;
  EpochSums epoch;
  double loss_average = 0;
  StepNote last;
  AfterStep left = AfterStep::kNothing;
  int division = 0;
};
static_assert(std::is_trivially_copyable_v<Header>);

// Who brings a step: of each part of it the first rank that has it.
struct Holders {
  int64_t step = -1;       // none
  std::vector<int> ranks;  // by part
};

// What of a state each rank has that has any: by step and by how many parts it is divided into, of each part
// the first rank.
using Offers = std::map<std::pair<int64_t, int>, std::vector<int>>;

// STEP COUNT PART…;…: `parts` of a state in so many.
std::string Offer(const std::vector<Held>& held) {
  std::string text;
  for (const Held& one : held) {
    text += std::to_string(one.position.step) + " " + std::to_string(std::max(one.division, 1));
    if (one.division == 0) text += " 0";
    for (const strategy::StatePart& part : one.parts) text += " " + std::to_string(part.number);
    text += ";";
  }
  return text;
}

void Note(const std::string& offer, int rank, Offers* offers) {
  std::istringstream all(offer);
  for (std::string one; std::getline(all, one, ';');) {
    std::istringstream words(one);
    int64_t step = 0;
    int count = 0;
    words >> step >> count;
    std::vector<int>& ranks = (*offers)[{step, count}];
    ranks.resize(static_cast<size_t>(count), -1);
    for (size_t part = 0; words >> part;) {
      if (part < ranks.size() && ranks[part] < 0) ranks[part] = rank;
    }
  }
}

Holders FindHolders(const strategy::World& world, contract::Store* store, std::chrono::milliseconds timeout,
                    const std::string& mine) {
  Offers offers;
  if (world.size == 1) {
    Note(mine, 0, &offers);
  } else {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    const auto check = [](const Status& status) {
      if (!status.ok()) throw RendezvousFailed("who holds which step: " + status.message());
    };
    const auto key = [](int rank) { return "held/" + std::to_string(rank); };
    check(store->Set(key(world.rank), mine, deadline));
    for (int rank = 0; rank < world.size; ++rank) {
      const Result<std::string> text = store->Get(key(rank), deadline);
      check(text.status());
      Note(*text, rank, &offers);
    }
  }
  Holders holders;
  for (const auto& [state, ranks] : offers) {
    if (std::find(ranks.begin(), ranks.end(), -1) != ranks.end()) continue;
    holders = {.step = state.first, .ranks = ranks};
  }
  return holders;
}

// A state on its way from those that have it to all.
class Transfer {
 public:
  Transfer(strategy::Strategy& strategy, int rank) : strategy_(strategy), rank_(rank) {}

  // The holder's on all.
  template <typename T>
  void Hand(std::span<T> data, int holder) {
    strategy_.Broadcast(std::as_writable_bytes(data), holder);
  }
  template <typename T>
  void Hand(std::vector<T>* data, int holder) {
    uint64_t size = data->size();
    Hand(std::span(&size, 1), holder);
    data->resize(size);
    Hand(std::span(*data), holder);
  }

  // Part `number`, `mine` if this rank brings it (its floats begin at `offset`), into the flat buffers.
  void HandPart(const Held* mine, size_t number, int holder, std::vector<std::vector<float>>* flat) {
    std::vector<collectives::Range> stretches;
    size_t begin = 0;  // of the part's floats among all that this rank has
    if (rank_ == holder) {
      for (const strategy::StatePart& part : mine->parts) {
        if (static_cast<size_t>(part.number) == number) {
          stretches = part.stretches;
          break;
        }
        begin += FloatsIn(part.stretches);
      }
    }
    Hand(&stretches, holder);
    for (size_t kind = 0; kind < flat->size(); ++kind) {
      std::vector<float> floats(FloatsIn(stretches));
      if (rank_ == holder) {
        const auto& from = kind == 0 ? mine->state.parameters : mine->state.slots[kind - 1];
        std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(begin), floats.size(), floats.begin());
      }
      Hand(std::span(floats), holder);
      const float* next = floats.data();
      for (const auto& [first, end] : stretches) {
        std::copy_n(next, end - first, (*flat)[kind].begin() + static_cast<std::ptrdiff_t>(first));
        next += end - first;
      }
    }
  }

 private:
  static size_t FloatsIn(const std::vector<collectives::Range>& stretches) {
    size_t floats = 0;
    for (const collectives::Range& stretch : stretches) floats += stretch.size();
    return floats;
  }

  strategy::Strategy& strategy_;
  int rank_;
};

}  // namespace

std::optional<Held> HandOver(const strategy::World& world, contract::Store* store,
                             std::chrono::milliseconds timeout, strategy::Strategy& strategy,
                             const Model& model, int slots, const std::vector<Held>& held) {
  const Holders holders = FindHolders(world, store, timeout, Offer(held));
  if (holders.ranks.empty()) {
    if (!held.empty())
      log::Warning("what is left does not make a whole state; what this rank holds is dropped");
    return std::nullopt;
  }
  const auto found = std::find_if(held.begin(), held.end(), [&](const Held& one) {
    return one.position.step == holders.step &&
           static_cast<size_t>(std::max(one.division, 1)) == holders.ranks.size();
  });
  const Held* const mine = found == held.end() ? nullptr : &*found;
  const int first = holders.ranks.front();
  if (first == world.rank) {
    log::Info("all go on after step " + std::to_string(holders.step) + ", which this rank holds" +
              (holders.ranks.size() > 1 ? " with others" : ""));
  }
  Held whole;
  Header header;
  if (first == world.rank) {
    header = {.step = mine->position.step,
              .data = mine->position.data,
              .epoch = mine->position.epoch,
              .loss_average = mine->position.loss_average,
              .last = mine->last,
              .left = mine->left,
              .division = mine->division};
    whole.state.state = mine->state.state;
    if (mine->division == 0) whole.state = mine->state;
  }
  Transfer transfer(strategy, world.rank);
  transfer.Hand(std::span(&header, 1), first);
  whole.position = {.step = header.step,
                    .data = header.data,
                    .epoch = header.epoch,
                    .loss_average = header.loss_average,
                    .board = {}};
  whole.last = header.last;
  whole.left = header.left;
  transfer.Hand(&whole.state.state, first);
  whole.state.slots.resize(static_cast<size_t>(slots));
  if (header.division == 0) {
    transfer.Hand(&whole.state.parameters, first);
    for (std::vector<float>& slot : whole.state.slots) transfer.Hand(&slot, first);
    return whole;
  }
  std::vector<std::vector<float>> flat(static_cast<size_t>(1 + slots),
                                       std::vector<float>(static_cast<size_t>(model.layout().total)));
  for (size_t part = 0; part < holders.ranks.size(); ++part) {
    transfer.HandPart(mine, part, holders.ranks[part], &flat);
  }
  for (size_t kind = 0; kind < flat.size(); ++kind) {
    std::vector<float>& to = kind == 0 ? whole.state.parameters : whole.state.slots[kind - 1];
    to.resize(static_cast<size_t>(model.canonical_size()));
    model.ExportCanonical(flat[kind].data(), to);
  }
  return whole;
}

}  // namespace lockstep::trainer
