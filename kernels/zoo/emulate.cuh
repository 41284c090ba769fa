// zoo/emulate.cuh: a block of real threads on the CPU, for tests (ZOO_EMULATE).
//
// The threads of one block share its variables and meet at a real barrier, so that the race
// detector and the block-size tests see a missing sync_env() that one thread would hide.
#pragma once
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#define ZOO_BLOCK_SHARED static  // one block runs at a time, so one copy is enough

static thread_local int zoo_thread_id = 0;
static int zoo_block_size = 1;

struct Barrier {
    std::mutex mutex;
    std::condition_variable turned;
    int waiting = 0;
    int turn = 0;

    void wait() {
        std::unique_lock<std::mutex> lock(mutex);
        const int mine = turn;
        if (++waiting == zoo_block_size) {
            waiting = 0;
            turn += 1;
            turned.notify_all();
            return;
        }
        turned.wait(lock, [&] { return turn != mine; });
    }
};
static Barrier zoo_block_barrier;

ZOO_FN int zoo_thread() { return zoo_thread_id; }
ZOO_FN int zoo_threads() { return zoo_block_size; }
ZOO_FN void zoo_barrier() { zoo_block_barrier.wait(); }

extern "C" void zoo_set_block_size(int threads) { zoo_block_size = threads; }

// Run `body` on every thread of a block.
template <class Body>
static void zoo_run_block(Body body) {
    std::vector<std::thread> threads;
    for (int t = 0; t < zoo_block_size; ++t)
        threads.emplace_back([t, &body] {
            zoo_thread_id = t;
            body();
        });
    for (auto& thread : threads) thread.join();
}
