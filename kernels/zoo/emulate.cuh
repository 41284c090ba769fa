// zoo/emulate.cuh: teams of real threads on the CPU, for tests (ZOO_EMULATE).
//
// The threads of one block share its variables and meet at a real barrier, so that the race
// detector and the block-size tests see a missing sync_env() that one thread would hide. Where
// environments share a block, or blocks an environment, they do so here too.
#pragma once
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#define ZOO_BLOCK_SHARED static  // one grid runs at a time, and what blocks share is no secret
// As many environments at a time as show that they do not meddle with each other.
#if ZOO_BLOCK_TEAMS > 2
  #undef ZOO_BLOCK_TEAMS
  #define ZOO_BLOCK_TEAMS 2
#endif

static thread_local int zoo_block_id = 0;
static thread_local int zoo_thread_id = 0;
static int zoo_team_size = 1;  // threads of one block, for one environment

class Barrier {
   public:
    void wait(int threads) {
        std::unique_lock<std::mutex> lock(mutex);
        const int mine = turn;
        if (++waiting == threads) {
            waiting = 0;
            turn += 1;
            turned.notify_all();
            return;
        }
        turned.wait(lock, [&] { return turn != mine; });
    }

   private:
    std::mutex mutex;
    std::condition_variable turned;
    int waiting = 0;
    int turn = 0;
};
static Barrier zoo_block_barriers[ZOO_TEAM_BLOCKS];
static Barrier zoo_team_barriers[ZOO_BLOCK_TEAMS];

ZOO_FN int block_thread() { return zoo_thread_id; }
ZOO_FN int block_threads() { return zoo_team_size * ZOO_BLOCK_TEAMS; }
ZOO_FN int block_index() { return zoo_block_id; }
ZOO_FN void block_barrier() { zoo_block_barriers[zoo_block_id].wait(block_threads()); }
ZOO_FN void team_barrier() { zoo_team_barriers[zoo_thread_id / zoo_team_size].wait(zoo_team_size); }

extern "C" void zoo_set_block_size(int threads) { zoo_team_size = threads; }

// Run `body` on every thread of the blocks that work at a time.
template <class Body>
static void run_blocks(Body body) {
    std::vector<std::thread> threads;
    for (int b = 0; b < ZOO_TEAM_BLOCKS; ++b)
        for (int t = 0; t < block_threads(); ++t)
            threads.emplace_back([b, t, &body] {
                zoo_block_id = b;
                zoo_thread_id = t;
                body();
            });
    for (auto& thread : threads) thread.join();
}
