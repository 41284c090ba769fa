// zoo/pool.cpp: the persistent threads that step environments on the CPU, and checks of actions.
//
// Built once into a library of its own and shared by every environment of the process. The caller
// takes part in the work, so a pool of n threads has n - 1 workers; after fork() the child starts
// workers of its own, since threads do not survive a fork.
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>
#include <unistd.h>

using Task = void (*)(const void* io, int begin, int end);

namespace {

struct Job {
    Task task = nullptr;
    const void* io = nullptr;
    int count = 0;
    int chunk = 0;
};

class Pool {
   public:
    explicit Pool(int threads) : owner(getpid()) {
        for (int t = 1; t < threads; ++t) std::thread([this] { work(); }).detach();
        workers = threads - 1;
    }

    void run(const Job& next) {
        std::lock_guard<std::mutex> one_at_a_time(caller);
        {
            std::lock_guard<std::mutex> lock(mutex);
            job = next;
            next_chunk.store(0);
            running = workers;
            turn.store(turn.load() + 1);
        }
        wake.notify_all();
        take_chunks(next);
        while (running.load() > 0) std::this_thread::yield();
    }

    const pid_t owner;

   private:
    void work() {
        int seen = 0;
        for (;;) {
            spin(seen);
            Job mine;
            {
                std::unique_lock<std::mutex> lock(mutex);
                wake.wait(lock, [&] { return turn.load() != seen; });
                seen = turn.load();
                mine = job;
            }
            take_chunks(mine);
            running.fetch_sub(1);
        }
    }

    // Steps often follow each other within microseconds, sooner than a sleeping thread wakes.
    void spin(int seen) const {
        for (int i = 0; i < 2000 && turn.load(std::memory_order_relaxed) == seen; ++i)
            std::atomic_signal_fence(std::memory_order_seq_cst);
    }

    void take_chunks(const Job& mine) {
        for (;;) {
            const int begin = next_chunk.fetch_add(mine.chunk);
            if (begin >= mine.count) return;
            const int end = begin + mine.chunk < mine.count ? begin + mine.chunk : mine.count;
            mine.task(mine.io, begin, end);
        }
    }

    std::mutex caller, mutex;
    std::condition_variable wake;
    std::atomic<int> turn{0}, next_chunk{0}, running{0};
    int workers = 0;
    Job job;
};

constexpr int MAX_THREADS = 1024;
std::mutex making;
Pool* pools[MAX_THREADS + 1];  // by number of threads; never deleted: threads may outlive main()

Pool& pool_of(int threads) {
    std::lock_guard<std::mutex> lock(making);
    Pool*& pool = pools[threads < MAX_THREADS ? threads : MAX_THREADS];
    if (pool == nullptr || pool->owner != getpid()) pool = new Pool(threads);
    return *pool;
}

}  // namespace

// Run task(io, begin, end) over [0, count) on up to `threads` threads, a chunk at a time.
extern "C" void zoo_pool_run(Task task, const void* io, int count, int threads, int chunk) {
    if (threads <= 1 || count <= chunk) return task(io, 0, count);
    pool_of(threads).run(Job{task, io, count, chunk});
}

// Index of the first action outside [0, n), or -1.
extern "C" int64_t zoo_find_bad_discrete(const int32_t* actions, int64_t count, int32_t n) {
    uint32_t worst = 0;
    for (int64_t i = 0; i < count; ++i) {
        const uint32_t action = (uint32_t)actions[i];  // negative numbers become large ones
        worst = action > worst ? action : worst;
    }
    if (worst < (uint32_t)n) return -1;
    for (int64_t i = 0; i < count; ++i)
        if ((uint32_t)actions[i] >= (uint32_t)n) return i;
    return -1;
}

// Index of the first entry outside [0, choices[k]), or -1; entry i is component i % n of an action.
extern "C" int64_t zoo_find_bad_multi(const int32_t* actions, int64_t count, const int32_t* choices,
                                      int32_t n) {
    for (int64_t i = 0; i < count; i += n)
        for (int32_t k = 0; k < n; ++k)
            if ((uint32_t)actions[i + k] >= (uint32_t)choices[k]) return i + k;
    return -1;
}

// Index of the first number outside [low, high] (NaN is), or -1.
extern "C" int64_t zoo_find_bad_box(const float* actions, int64_t count, float low, float high) {
    bool good = true;
    for (int64_t i = 0; i < count; ++i) good &= actions[i] >= low && actions[i] <= high;
    if (good) return -1;
    for (int64_t i = 0; i < count; ++i)
        if (!(actions[i] >= low && actions[i] <= high)) return i;
    return -1;
}
