#include "trainer/checkpoint/parts.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

namespace lockstep::trainer::checkpoint {
namespace {

// Where each is among the values of all.
std::vector<size_t> OffsetsOf(const std::vector<Variable>& variables) {
  std::vector<size_t> offsets;
  size_t next = 0;
  for (const Variable& variable : variables) {
    offsets.push_back(next);
    next += static_cast<size_t>(variable.elements());
  }
  return offsets;
}

std::vector<Variable> Chosen(const std::vector<Variable>& all, const std::vector<size_t>& indices) {
  std::vector<Variable> chosen;
  chosen.reserve(indices.size());
  for (const size_t i : indices) chosen.push_back(all[i]);
  return chosen;
}

// Where the variables of a part are among all; kInvalidArgument unless each is one that `has` not come yet.
Result<std::vector<size_t>> Find(const std::vector<Variable>& part, const std::vector<Variable>& all,
                                 std::vector<bool>* has) {
  std::map<std::string_view, size_t> by_name;
  for (size_t i = 0; i < all.size(); ++i) by_name.emplace(all[i].name, i);
  std::vector<size_t> places;
  for (const Variable& variable : part) {
    const auto found = by_name.find(variable.name);
    if (found == by_name.end() || all[found->second] != variable) {
      return InvalidArgument(variable.name + " is not of this checkpoint");
    }
    if ((*has)[found->second]) return InvalidArgument(variable.name + " is there twice");
    (*has)[found->second] = true;
    places.push_back(found->second);
  }
  return places;
}

// The values of a part's variables to where they are in the whole.
void Place(const std::vector<float>& part, const std::vector<size_t>& places,
           const std::vector<Variable>& all, std::vector<float>* whole) {
  const std::vector<size_t> offsets = OffsetsOf(all);
  const float* from = part.data();
  for (const size_t place : places) {
    const auto size = static_cast<size_t>(all[place].elements());
    std::copy_n(from, size, whole->data() + offsets[place]);
    from += size;
  }
}

}  // namespace

Signature SignatureOf(const Signature& whole, const std::vector<size_t>& variables,
                      const std::vector<size_t>& state) {
  Signature signature = whole;
  signature.variables = Chosen(whole.variables, variables);
  signature.state = Chosen(whole.state, state);
  return signature;
}

Assembly::Assembly(Snapshot index)
    : whole_(std::move(index)),
      has_variable_(whole_.signature.variables.size()),
      has_state_(whole_.signature.state.size()) {
  whole_.parts.clear();
  const auto elements = static_cast<size_t>(whole_.signature.elements());
  whole_.parameters.resize(elements);
  whole_.slots.resize(whole_.signature.slots.size());
  for (std::vector<float>& slot : whole_.slots) slot.resize(elements);
  whole_.state.resize(static_cast<size_t>(whole_.signature.state_elements()));
}

Status Assembly::Add(const Snapshot& part) {
  const Signature& all = whole_.signature;
  if (part.step != whole_.step || part.generation != whole_.generation) {
    return InvalidArgument("it is of step " + std::to_string(part.step) + ", generation " +
                           std::to_string(part.generation));
  }
  if (!part.parts.empty() || part.signature.slots != all.slots) {
    return InvalidArgument("it is no part of such a checkpoint");
  }
  const auto variables = Find(part.signature.variables, all.variables, &has_variable_);
  LOCKSTEP_RETURN_IF_ERROR(variables.status());
  const auto state = Find(part.signature.state, all.state, &has_state_);
  LOCKSTEP_RETURN_IF_ERROR(state.status());
  Place(part.parameters, *variables, all.variables, &whole_.parameters);
  for (size_t i = 0; i < whole_.slots.size(); ++i) {
    Place(part.slots[i], *variables, all.variables, &whole_.slots[i]);
  }
  Place(part.state, *state, all.state, &whole_.state);
  return {};
}

Result<Snapshot> Assembly::Finish() && {
  const auto missing = [](const std::vector<bool>& has, const std::vector<Variable>& all) {
    const auto first = std::find(has.begin(), has.end(), false);
    return first == has.end() ? "" : all[static_cast<size_t>(first - has.begin())].name;
  };
  std::string name = missing(has_variable_, whole_.signature.variables);
  if (name.empty()) name = missing(has_state_, whole_.signature.state);
  if (!name.empty()) return InvalidArgument("none of its parts has " + name);
  return std::move(whole_);
}

}  // namespace lockstep::trainer::checkpoint
