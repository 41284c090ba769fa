// zoo/team.cuh: the threads that simulate one environment, where they meet, and what they count
// together.
//
// gpu_zoo/team.py chooses: ZOO_TEAM_THREADS of one block, ZOO_BLOCK_TEAMS environments a block, or
// ZOO_TEAM_BLOCKS blocks an environment. On a GPU the hardware says who a thread is; the plain CPU
// build has one thread a team, for which a barrier has nothing to do; the emulated build has real
// threads and real barriers.
#pragma once

#if defined(ZOO_EMULATE)
  #include "zoo/emulate.cuh"
#elif ZOO_GPU
  ZOO_FN int block_thread() { return (int)threadIdx.x; }
  ZOO_FN int block_threads() { return (int)blockDim.x; }
  ZOO_FN int block_index() { return (int)blockIdx.x; }
  ZOO_FN void block_barrier() { __syncthreads(); }
  ZOO_FN void team_barrier() { __syncthreads(); }
  #define ZOO_BLOCK_SHARED __shared__
#else
  #undef ZOO_BLOCK_TEAMS
  #define ZOO_BLOCK_TEAMS 1
  ZOO_FN int block_thread() { return 0; }
  ZOO_FN int block_threads() { return 1; }
  ZOO_FN void team_barrier() {}
  #define ZOO_BLOCK_SHARED
#endif

// Where an environment has several blocks: all their threads meet. Each block sends one thread,
// which takes a number and waits until the last block has taken its own. The count only grows,
// and wraps around, as the number of blocks is a power of two.
#if !ZOO_LANE && ZOO_TEAM_BLOCKS > 1 && (ZOO_GPU || defined(ZOO_EMULATE))
  #define ZOO_SPREAD 1
  ZOO_FN int team_slot() { return block_index() / ZOO_TEAM_BLOCKS; }
  #if ZOO_GPU
    // The count that this block's team meets at; set when the kernel begins.
    ZOO_FN unsigned*& meeting() {
        __shared__ unsigned* count;
        return count;
    }
    ZOO_FN void meet_at(unsigned* counts) {
        if (block_thread() == 0) meeting() = counts + team_slot();
        block_barrier();
    }
    ZOO_FN unsigned arrive() {
        __threadfence();  // what this block wrote comes first
        return atomicAdd(meeting(), 1u);
    }
    ZOO_FN unsigned arrived() { return *(volatile unsigned*)meeting(); }
    ZOO_FN void after_arrival() { __threadfence(); }
  #else
    static unsigned zoo_arrivals;  // one grid runs at a time
    ZOO_FN unsigned arrive() { return __atomic_fetch_add(&zoo_arrivals, 1u, __ATOMIC_ACQ_REL); }
    ZOO_FN unsigned arrived() {
        std::this_thread::yield();
        return __atomic_load_n(&zoo_arrivals, __ATOMIC_ACQUIRE);
    }
    ZOO_FN void after_arrival() {}
  #endif
  ZOO_FN void blocks_barrier() {
      block_barrier();
      if (block_thread() == 0) {
          const unsigned last = (arrive() | (ZOO_TEAM_BLOCKS - 1)) + 1;
          while ((int)(arrived() - last) < 0) {}
          after_arrival();
      }
      block_barrier();
  }
#else
  #define ZOO_SPREAD 0
#endif

#if ZOO_LANE
  #define zoo_first 0
  #define zoo_stride 1
  ZOO_FN void sync_env() {}
  ZOO_FN bool is_first_thread() { return true; }
#else
  #define zoo_first team_thread()
  #define zoo_stride team_threads()
  ZOO_FN int team_of_block() { return block_thread() / (block_threads() / ZOO_BLOCK_TEAMS); }
  #if ZOO_SPREAD
    ZOO_FN int team_thread() {
        return block_index() % ZOO_TEAM_BLOCKS * block_threads() + block_thread();
    }
    ZOO_FN int team_threads() { return ZOO_TEAM_BLOCKS * block_threads(); }
    ZOO_FN void sync_env() { blocks_barrier(); }
  #elif ZOO_BLOCK_TEAMS > 1 && ZOO_GPU
    ZOO_FN int team_thread() { return block_thread() % ZOO_TEAM_THREADS; }
    ZOO_FN int team_threads() { return ZOO_TEAM_THREADS; }
    ZOO_FN void sync_env() {
        const unsigned lanes = (unsigned)((1ull << ZOO_TEAM_THREADS) - 1);
        __syncwarp(lanes << (block_thread() % 32 & ~(ZOO_TEAM_THREADS - 1)));
    }
  #else
    ZOO_FN int team_threads() { return block_threads() / ZOO_BLOCK_TEAMS; }
    ZOO_FN int team_thread() { return block_thread() % team_threads(); }
    ZOO_FN void sync_env() { team_barrier(); }
  #endif
  ZOO_FN bool is_first_thread() { return team_thread() == 0; }
#endif

// Counting together, the one exception to the rule that an iteration writes only what it owns: the
// order in which the team's threads come must not matter to what is made of the result.
#if ZOO_GPU && !ZOO_LANE
  ZOO_FN int team_add(int& sum, int more) { return atomicAdd(&sum, more); }
  ZOO_FN void team_min(u64& least, u64 value) { atomicMin(&least, value); }
  ZOO_FN void team_or(int& flags, int more) { atomicOr(&flags, more); }
#elif defined(ZOO_EMULATE) && !ZOO_LANE
  ZOO_FN int team_add(int& sum, int more) {
      return __atomic_fetch_add(&sum, more, __ATOMIC_RELAXED);
  }
  ZOO_FN void team_min(u64& least, u64 value) {
      u64 seen = __atomic_load_n(&least, __ATOMIC_RELAXED);
      while (value < seen && !__atomic_compare_exchange_n(&least, &seen, value, true,
                                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
  }
  ZOO_FN void team_or(int& flags, int more) {
      __atomic_fetch_or(&flags, more, __ATOMIC_RELAXED);
  }
#else
  ZOO_FN int team_add(int& sum, int more) {
      const int before = sum;
      sum = before + more;
      return before;
  }
  ZOO_FN void team_min(u64& least, u64 value) { least = value < least ? value : least; }
  ZOO_FN void team_or(int& flags, int more) { flags |= more; }
#endif
