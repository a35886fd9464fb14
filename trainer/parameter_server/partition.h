#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/tensor/parameter_layout.h"

// parameter_server/: training in which servers hold the variables and workers bring gradients.
//   partition.h    which server has which part of the flat buffers;
//   work_board.h   which batch is whose, which gradients count, what an update is made of: logic alone;
//   shard.h        one server's variables, and the gradients that wait to be applied to them;
//   coordinator.h  server 0's second part: it keeps the board, and all servers do what it says in its order;
//   server.h       lets workers, the evaluator and other servers in; follower.h: what those other servers do;
//   client.h       a worker's way to all of the servers;
//   protocol.h, connection.h  what they say to each other, and over what.
// Server 0 numbers the updates, and every server applies the same gradients in the same order, so that the
// state of all servers at a number is one state of the training: that is what checkpoints hold.
// (docs/adr/0007-servers-in-one-order.md)
namespace lockstep::trainer::parameter_server {

// A range of the flat buffers, in floats.
struct Piece {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  friend bool operator==(const Piece&, const Piece&) = default;
};

enum class Spread {
  kLeastLoaded,  // the largest first, each to the server that has the fewest bytes so far, the first of
                 // equals
  kRoundRobin,   // in the layout's order, each to the next server
};

// A variable of more than this (256 KiB) is cut into pieces of at least half of it, at most one a server.
inline constexpr int64_t kLargestWhole = 64 * 1024;
// Where a variable may be cut, in floats from its beginning: a multiple of this (16 KiB).
inline constexpr int64_t kCut = 4 * 1024;

// What each server has, by offset, neighbours merged; together everything in [0, layout.total), once. A
// server may have nothing.
std::vector<std::vector<Piece>> Partition(const ParameterLayout& layout, int servers, Spread spread);

int64_t FloatsIn(std::span<const Piece> pieces);

// The layout's update ranges as they lie in a buffer in which the pieces follow one another without gaps.
std::vector<UpdateRange> RangesOf(const ParameterLayout& layout, std::span<const Piece> pieces);

// Between the flat buffer and such a one.
void Gather(std::span<const Piece> pieces, const float* flat, float* dense);
void Scatter(std::span<const Piece> pieces, const float* dense, float* flat);

}  // namespace lockstep::trainer::parameter_server
