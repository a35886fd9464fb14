#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "trainer/collectives/local/local_group.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/strategy/strategy.h"

// How the ranks of a job meet, whatever they compute on.
namespace lockstep::trainer::strategy {

// The ranks of this machine. Throws as LocalGroup::Join does.
std::unique_ptr<collectives::LocalGroup> JoinMachine(const Options& options);

// Returns when every rank has said that its model and optimizer are the same as this one's. To be called
// before memory is sized by the model, and before anybody connects: it goes through the store, so whoever
// differs is known to all, and nobody is left waiting for those who gave up over it. Throws BadModel,
// RendezvousFailed.
void CompareModels(const Options& options, const ParameterLayout& layout, int slots);

// Collective: the data of the rank that has it (`mine`) on every rank of the machine. `between` is called on
// every rank, with the place that all of the machine read afterwards, before they do. `number`: another each
// time.
void BroadcastOnMachine(collectives::LocalGroup& group, uint64_t number, std::span<std::byte> data, bool mine,
                        const std::function<void(std::span<std::byte>)>& between,
                        collectives::Deadline deadline);

}  // namespace lockstep::trainer::strategy
