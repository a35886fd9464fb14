#include "tests/support/cuda_on_host/block.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/cuda_on_host/fiber.h"

namespace lockstep::cuda_on_host {
namespace {

// Threads of one warp that wait for one another.
struct WarpGroup {
  uint32_t mask = 0;
  uint32_t waiting = 0;
  // Twice: the lanes may still read one round's values while the first ones come to the next.
  WarpValues rounds[2] = {};
  unsigned round = 0;
};

struct Warp {
  uint32_t alive = 0;  // lanes that have not returned
  std::vector<WarpGroup> groups;
};

class Block;

// A fiber, and the kernel's thread that it runs now. A thread that never waits leaves it to the next one.
struct Runner {
  Runner() : fiber(Main, this) {}
  static void Main(void* runner);

  Block* block = nullptr;
  Fiber fiber;
  ThreadPlace place{};
  unsigned index = 0;    // of the thread in its block
  bool ready = false;    // has a thread, which can go on
  bool working = false;  // has a thread
};

class Block {
 public:
  Block(const std::string& kernel, const Grid& grid, const std::function<void()>& body)
      : kernel_(kernel),
        grid_(grid),
        body_(body),
        threads_(grid.threads.x * grid.threads.y * grid.threads.z),
        shared_(grid.dynamic_shared + 16),
        runner_of_(threads_) {}
  ~Block() {
    for (auto& runner : runners_) idle.push_back(std::move(runner));
  }

  void Run(uint3 block);
  void Work(Runner& runner);
  int WaitForBlock(Runner& runner, bool vote);
  const WarpValues& WaitForWarp(Runner& runner, uint32_t mask, uint64_t value);

  static thread_local Runner* current;
  static thread_local std::vector<std::unique_ptr<Runner>> idle;  // of no block: stacks are dear

 private:
  void Enter(Runner& runner) {
    runner.ready = false;
    current = &runner;
    runner.fiber.Enter();
    current = nullptr;
  }
  void ReleaseBlock();
  // Lets the lanes go that wait for no one any more.
  void ReleaseWarp(unsigned warp);
  Runner& AddRunner() {
    if (idle.empty()) {
      runners_.push_back(std::make_unique<Runner>());
    } else {
      runners_.push_back(std::move(idle.back()));
      idle.pop_back();
    }
    runners_.back()->block = this;
    return *runners_.back();
  }
  [[noreturn]] void Stuck();

  const std::string& kernel_;
  const Grid& grid_;
  const std::function<void()>& body_;
  const unsigned threads_;
  std::vector<std::byte> shared_;
  std::vector<std::unique_ptr<Runner>> runners_;
  std::vector<Runner*> runner_of_;  // by the thread's index
  std::vector<Warp> warps_;
  uint3 block_{};
  unsigned unstarted_ = 0;
  unsigned alive_ = 0;
  unsigned at_barrier_ = 0;
  int votes_ = 0;
  int last_votes_ = 0;
  std::vector<bool> in_barrier_;
};

thread_local Runner* Block::current = nullptr;
thread_local std::vector<std::unique_ptr<Runner>> Block::idle;

void Runner::Main(void* argument) {
  auto* runner = static_cast<Runner*>(argument);
  for (;;) {
    runner->block->Work(*runner);
    runner->fiber.Leave();
  }
}

// Takes threads until there are none left to start; within, the fiber is left where they wait.
void Block::Work(Runner& runner) {
  while (unstarted_ > 0) {
    const unsigned index = --unstarted_;
    runner.index = index;
    runner.working = true;
    runner_of_[index] = &runner;
    const dim3& size = grid_.threads;
    runner.place = {.thread = {index % size.x, index / size.x % size.y, index / size.x / size.y},
                    .block = block_,
                    .block_size = size,
                    .grid_size = grid_.blocks,
                    .dynamic_shared = shared_.data()};
    body_();
    runner.working = false;
    Warp& warp = warps_[index / kWarpSize];
    warp.alive &= ~(1u << (index % kWarpSize));
    --alive_;
    ReleaseWarp(index / kWarpSize);
    ReleaseBlock();
  }
}

int Block::WaitForBlock(Runner& runner, bool vote) {
  in_barrier_[runner.index] = true;
  ++at_barrier_;
  votes_ += vote ? 1 : 0;
  ReleaseBlock();
  if (in_barrier_[runner.index]) {
    runner.fiber.Leave();
  } else {
    runner.ready = false;  // it was the last to come, and just goes on
  }
  return last_votes_;
}

void Block::ReleaseBlock() {
  if (at_barrier_ == 0 || at_barrier_ < alive_) return;
  at_barrier_ = 0;
  last_votes_ = votes_;
  votes_ = 0;
  for (const auto& runner : runners_) {
    if (!runner->working || !in_barrier_[runner->index]) continue;
    in_barrier_[runner->index] = false;
    runner->ready = true;
  }
}

const WarpValues& Block::WaitForWarp(Runner& runner, uint32_t mask, uint64_t value) {
  const unsigned of_block = runner.index / kWarpSize;
  const unsigned lane = runner.index % kWarpSize;
  if ((mask >> lane & 1u) == 0) {
    std::fprintf(stderr, "cuda_on_host: kernel %s: lane %u is not in its own mask %08x\n", kernel_.c_str(),
                 lane, mask);
    std::abort();
  }
  Warp& warp = warps_[of_block];
  size_t at = 0;
  while (at < warp.groups.size() && warp.groups[at].mask != mask) ++at;
  if (at == warp.groups.size()) warp.groups.push_back({.mask = mask});
  WarpGroup& group = warp.groups[at];
  const unsigned round = group.round;
  WarpValues& values = group.rounds[round % 2];
  if (group.waiting == 0) values.came = 0;
  values.of_lane[lane] = value;
  values.came |= 1u << lane;
  group.waiting |= 1u << lane;
  ReleaseWarp(of_block);
  if (warp.groups[at].round == round) {
    runner.fiber.Leave();
  } else {
    runner.ready = false;
  }
  return warps_[of_block].groups[at].rounds[round % 2];
}

void Block::ReleaseWarp(unsigned of_block) {
  Warp& warp = warps_[of_block];
  for (WarpGroup& group : warp.groups) {
    if (group.waiting == 0 || (group.mask & warp.alive & ~group.waiting) != 0) continue;
    const uint32_t waiting = group.waiting;
    group.waiting = 0;
    ++group.round;
    for (unsigned lane = 0; lane < kWarpSize; ++lane) {
      if ((waiting >> lane & 1u) != 0) runner_of_[of_block * kWarpSize + lane]->ready = true;
    }
  }
}

void Block::Stuck() {
  std::fprintf(stderr,
               "cuda_on_host: kernel %s: block (%u,%u,%u) is stuck: of %u threads that have not returned, %u "
               "wait in __syncthreads, the others for lanes of their warps\n",
               kernel_.c_str(), block_.x, block_.y, block_.z, alive_, at_barrier_);
  std::abort();
}

void Block::Run(uint3 block) {
  block_ = block;
  unstarted_ = alive_ = threads_;
  at_barrier_ = 0;
  votes_ = 0;
  in_barrier_.assign(threads_, false);
  warps_.assign((threads_ + kWarpSize - 1) / kWarpSize, {});
  for (unsigned i = 0; i < threads_; ++i) warps_[i / kWarpSize].alive |= 1u << (i % kWarpSize);
  while (alive_ > 0) {
    bool moved = false;
    // (By index: a runner that waits may be joined by new ones.)
    for (size_t i = 0; i < runners_.size(); ++i) {
      Runner& runner = *runners_[i];
      const bool can_start = !runner.working && unstarted_ > 0;
      if (!runner.ready && !can_start) continue;
      moved = true;
      Enter(runner);
    }
    while (unstarted_ > 0) {
      Enter(AddRunner());
      moved = true;
    }
    if (!moved) Stuck();
  }
}

}  // namespace

void RunGrid(const std::string& kernel, const Grid& grid, const std::function<void()>& thread_body) {
  Block block(kernel, grid, thread_body);
  for (unsigned z = grid.blocks.z; z-- > 0;) {
    for (unsigned y = grid.blocks.y; y-- > 0;) {
      for (unsigned x = grid.blocks.x; x-- > 0;) block.Run({x, y, z});
    }
  }
}

const ThreadPlace& Here() { return Block::current->place; }

int WaitForBlock(bool vote) {
  Runner& runner = *Block::current;
  return runner.block->WaitForBlock(runner, vote);
}

const WarpValues& WaitForWarp(uint32_t mask, uint64_t value) {
  Runner& runner = *Block::current;
  return runner.block->WaitForWarp(runner, mask, value);
}

int LaneHere() { return static_cast<int>(Block::current->index % kWarpSize); }

}  // namespace lockstep::cuda_on_host
