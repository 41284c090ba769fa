// mpe/targets.cuh: all agents are scored by how near they come to as many targets.
//
// Every agent is given a target of its own, by mpe/assign.cuh. Expects of the spec, beside the
// world's, the scratch of gpu_zoo/mpe/targets.py: shared, close, and room for mpe/assign.cuh.
#pragma once
#include "mpe/world.cuh"
#include "mpe/assign.cuh"

static_assert(N_AGENTS <= MAX_SETS_OF || N_ROOM == N_AGENTS, "gpu_zoo/mpe/targets.py: N_ROOM");
constexpr real CLOSE = R(0.05);

// Scores the state by N_AGENTS targets, which an earlier phase wrote.
//   phase 1  first thread: matches agents and targets   (writes shared, close)
//   phase 2  agent i: its reward, whether all are close
ZOO_FN void score_targets(Env& e, const real (*target)[2]) {
    const State& s = e.s;
    if (is_first_thread()) {
        const Matched m = match<N_AGENTS>(
            [&](int i, int j) { return distance(s.pos[i], target[j]); }, e.t);
        e.t.shared = 0 - m.clipped / N_AGENTS;
        e.t.close = m.largest < CLOSE;
    }
    sync_env();
    for_each(i, N_AGENTS) {
        e.reward(i) = e.t.shared;
        e.terminated(i) = e.p.terminate_on_success && e.t.close;
    }
}
