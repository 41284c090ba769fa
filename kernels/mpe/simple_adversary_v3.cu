// simple_adversary_v3.cu: N good agents know which landmark is the goal, one adversary does not.
//
// Data: gpu_zoo/mpe/simple_adversary_v3.py. Follows mpe2 1.1.1. Agents: the adversary first.
//
//   env_reset    first thread  goal, then agents, then landmarks, uniform in the square
//   env_step     physics       two phases, see mpe/world.cuh
//   env_score    phase 1       agent i: its distance from the goal   (writes goal_distance[i])
//                phase 2       agent i: its reward
//   env_observe  agent i       [goal, not for the adversary | landmarks | other agents]
#include "zoo/zoo.cuh"
#include "mpe/world.cuh"

constexpr int ADVERSARY = 0;

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
    for_each(i, N_AGENTS)
        e.t.goal_distance[i] = goal_distance(e.s, i, e.s.goal);
    sync_env();

    for_each(i, N_AGENTS) {
        real nearest = e.t.goal_distance[1];
        ZOO_UNROLL for (int g = 2; g < N_AGENTS; ++g)
            nearest = zoo_min(nearest, e.t.goal_distance[g]);
        e.reward(i) = i == ADVERSARY ? -e.t.goal_distance[ADVERSARY]
                                     : -nearest + e.t.goal_distance[ADVERSARY];
    }
}

ZOO_FN void env_observe(const Env& e, int i, Row o) {
    if (i != ADVERSARY) o = write(o, goal_position(e.s, e.s.goal) - vec(e.s.pos[i]));
    o = write_landmarks(o, e.s, i, num_landmark_neighbors);
    write_others(o, e.s, i, num_agent_neighbors);
}

#if ZOO_INFO
// mpe2's benchmark data: squared distances from all landmarks, then from the goal; of the
// adversary only the last.
ZOO_FN void env_info(const Env& e, int i, real* info) {
    if (i != ADVERSARY) {
        ZOO_UNROLL for (int l = 0; l < N_LANDMARKS; ++l)
            info[l] = squared(vec(e.s.pos[i]) - vec(e.s.landmark[l]));
        info += N_LANDMARKS;
    }
    info[0] = squared(vec(e.s.pos[i]) - goal_position(e.s, e.s.goal));
}
#endif

#include "zoo/entry.cuh"
