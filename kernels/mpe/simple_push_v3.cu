// simple_push_v3.cu: an adversary keeps an agent away from its goal, which it does not know.
//
// Data: gpu_zoo/mpe/simple_push_v3.py. Follows mpe2 1.1.1. Agents: adversary, good agent.
//
//   env_reset    first thread  goal, then agents, then landmarks, uniform in the square
//   env_step     physics       two phases, see mpe/world.cuh
//   env_score    agent i       its reward
//   env_observe  agent i       adversary [vel | landmarks | other agent], good agent [vel | goal |
//                              own colour | landmarks | landmarks' colours | other agent]
#include "zoo/zoo.cuh"
#include "mpe/world.cuh"

constexpr int ADVERSARY = 0;
constexpr int GOOD = 1;

ZOO_FN void env_reset(Env& e) {
    if (!is_first_thread()) return;
    e.s.goal = rng_integers(e.rng, N_LANDMARKS);
    scatter_agents(e);
    scatter_landmarks(e, 1);
}

ZOO_FN void env_step(Env& e) {
    world_step(e);
}

ZOO_FN void env_score(Env& e) {
    const State& s = e.s;
    for_each(i, N_AGENTS) {
        e.reward(i) = i == GOOD ? -goal_distance(s, GOOD, s.goal)
                                : goal_distance(s, GOOD, s.goal) - goal_distance(s, ADVERSARY, s.goal);
    }
}

ZOO_FN void env_observe(const Env& e, int i, Row o) {
    const State& s = e.s;
    o = write(o, vec(s.vel[i]));
    if (i == GOOD) {
        o = write(o, goal_position(s, s.goal) - vec(s.pos[i]));
        o = write_one_hot(o, COLORS, s.goal + 1, 0.75f, 0.25f);
    }
    o = write_landmarks(o, s, i);
    if (i == GOOD) {
        ZOO_UNROLL for (int l = 0; l < N_LANDMARKS; ++l)
            o = write_one_hot(o, COLORS, l + 1, 0.9f, 0.1f);
    }
    write_others(o, s, i);
}

#include "zoo/entry.cuh"
