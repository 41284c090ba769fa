// simple_formation_v1.cu: N agents form a circle around a landmark.
//
// Data: gpu_zoo/mpe/simple_formation_v1.py. Follows mpe2 1.1.1.
//
//   env_reset    first thread  agents, then the landmark, nearer the centre
//   env_step     physics       two phases, see mpe/world.cuh
//   env_score    phase 1       agent i: its angle as the landmark sees it    (writes angle[i])
//                phase 2       target k: its place on the circle             (writes target[k])
//                then          two phases, see mpe/targets.cuh
//   env_observe  agent i       [vel | pos | landmark]
#include "zoo/zoo.cuh"
#include "mpe/targets.cuh"

constexpr real TURN = R(6.283185307179586);
constexpr real RADIUS = R(0.5);

ZOO_FN void env_reset(Env& e) {
    if (!is_first_thread()) return;
    scatter_agents(e);
    scatter_landmarks(e, R(0.5));
}

ZOO_FN void env_step(Env& e) {
    world_step(e);
}

ZOO_FN void env_score(Env& e) {
    const State& s = e.s;
    const real* centre = s.landmark[0];
    for_each(i, N_AGENTS) {
        const Vec v = vec(s.pos[i]) - vec(centre);
        const real angle = real_atan2(v.y, v.x);
        e.t.angle[i] = angle < 0 ? angle + TURN : angle;
    }
    sync_env();

    // The circle starts at the agent with the smallest angle.
    for_each(k, N_AGENTS) {
        real start = e.t.angle[0];
        ZOO_UNROLL for (int i = 1; i < N_AGENTS; ++i) start = zoo_min(start, e.t.angle[i]);
        const real angle = start + k * (TURN / N_AGENTS);
        e.t.target[k][0] = centre[0] + RADIUS * real_cos(angle);
        e.t.target[k][1] = centre[1] + RADIUS * real_sin(angle);
    }
    sync_env();
    score_targets(e, e.t.target);
}

ZOO_FN void env_observe(const Env& e, int i, Row o) {
    o = write_self(o, e.s, i);
    write_landmarks(o, e.s, i);
}

#include "zoo/entry.cuh"
