// simple_v3.cu: one agent goes to a landmark.
//
// Data: gpu_zoo/mpe/simple_v3.py. Follows mpe2 1.1.1.
//
//   env_reset    first thread  agent, then landmark, uniform in the square
//   env_step     physics       two phases, see mpe/world.cuh
//   env_score    agent i       minus its squared distance from the landmark
//   env_observe  agent i       [vel | landmark]
#include "zoo/zoo.cuh"
#include "mpe/world.cuh"

ZOO_FN void env_reset(Env& e) {
    if (!is_first_thread()) return;
    scatter_agents(e);
    scatter_landmarks(e, 1);
}

ZOO_FN void env_step(Env& e) {
    world_step(e);
}

ZOO_FN void env_score(Env& e) {
    for_each(i, N_AGENTS)
        e.reward(i) = -squared(vec(e.s.pos[i]) - vec(e.s.landmark[0]));
}

ZOO_FN void env_observe(const Env& e, int i, Row o) {
    o = write(o, vec(e.s.vel[i]));
    write_landmarks(o, e.s, i);
}

#include "zoo/entry.cuh"
