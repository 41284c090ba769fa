// mpe/chase.cuh: what simple_tag and simple_world_comm share: adversaries, numbered first, that chase
// good agents.
//
// Constants  num_adversaries
// Scratch    hits[N_AGENTS]
#pragma once
#include "mpe/world.cuh"

ZOO_FN bool is_adversary(int i) { return i < num_adversaries; }

// Good agent i: how many adversaries touch it   (writes hits[i]; 0 for adversaries)
ZOO_FN void count_hits(Env& e) {
    for_each(i, N_AGENTS) {
        int hits = 0;
        ZOO_UNROLL for (int a = 0; a < num_adversaries; ++a)
            if (!is_adversary(i) && agents_touch(e.s, a, i)) hits += 1;
        e.t.hits[i] = hits;
    }
}

#if ZOO_INFO
// mpe2's benchmark data: how many good agents an adversary touches; 0 for good agents.
ZOO_FN void env_info(const Env& e, int i, real* info) {
    int touches = 0;
    ZOO_UNROLL for (int g = num_adversaries; g < N_AGENTS; ++g)
        if (is_adversary(i) && agents_touch(e.s, g, i)) touches += 1;
    info[0] = R(touches);
}
#endif
