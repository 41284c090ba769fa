// simple_reference_v3.cu: two agents, each of which knows where the other one must go.
//
// Data: gpu_zoo/mpe/simple_reference_v3.py. Follows mpe2 1.1.1. Landmark goal[i] is the one that
// agent i knows of, and that the other agent must reach.
//
//   env_reset    first thread  goals, then agents, then landmarks, uniform in the square
//   env_step     physics       two phases, see mpe/world.cuh
//   env_score    phase 1       agent i: the other one's distance from goal[i]   (writes miss[i])
//                phase 2       agent i: its reward
//   env_observe  agent i       [vel | landmarks | colour of goal[i] | what the other one says]
#include "zoo/zoo.cuh"
#include "mpe/world.cuh"

ZOO_FN int other(int i) { return 1 - i; }

ZOO_FN void env_reset(Env& e) {
    if (!is_first_thread()) return;
    ZOO_UNROLL for (int i = 0; i < N_AGENTS; ++i) e.s.goal[i] = rng_integers(e.rng, N_LANDMARKS);
    scatter_agents(e);
    scatter_landmarks(e, 1);
}

ZOO_FN void env_step(Env& e) {
    world_step(e);
}

ZOO_FN void env_score(Env& e) {
    const State& s = e.s;
    for_each(i, N_AGENTS)
        e.t.miss[i] = goal_distance(s, other(i), s.goal[i]);
    sync_env();

    for_each(i, N_AGENTS) {
        const real shared = (-e.t.miss[0] - e.t.miss[1]) / 2;
        e.reward(i) = shared * (1 - e.p.local_ratio) - e.t.miss[i] * e.p.local_ratio;
    }
}

ZOO_FN void env_observe(const Env& e, int i, Row o) {
    o = write(o, vec(e.s.vel[i]));
    o = write_landmarks(o, e.s, i);
    o = write_one_hot(o, COLORS, e.s.goal[i], 0.75f, 0.25f);
    write_utterance(o, e.s, other(i));
}

#include "zoo/entry.cuh"
