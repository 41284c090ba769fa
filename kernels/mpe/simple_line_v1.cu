// simple_line_v1.cu: N agents line up between two landmarks.
//
// Data: gpu_zoo/mpe/simple_line_v1.py. Follows mpe2 1.1.1.
//
//   env_reset    first thread  agents, the two landmarks, and the targets between them
//   env_step     physics       two phases, see mpe/world.cuh
//   env_score    scoring       two phases, see mpe/targets.cuh
//   env_observe  agent i       [vel | pos | landmarks]
#include "zoo/zoo.cuh"
#include "mpe/targets.cuh"

constexpr real TURN = R(6.283185307179586);
constexpr real FIVE_DEGREES = R(0.08726646259971647);
constexpr real LENGTH = R(1.25);

// The second landmark lies in a random direction from the first; if that is out of the square, in
// the next one that is not, by steps of five degrees. There always is one.
ZOO_FN void env_reset(Env& e) {
    if (!is_first_thread()) return;
    scatter_agents(e);
    scatter_landmarks(e, R(0.25), 0, 1);
    const real* from = e.s.landmark[0];
    real* to = e.s.landmark[1];
    real angle = rng_uniform(e.rng, 0, TURN);
    Vec direction;
    do {
        direction = Vec{real_cos(angle), real_sin(angle)};
        to[0] = from[0] + LENGTH * direction.x;
        to[1] = from[1] + LENGTH * direction.y;
        angle += FIVE_DEGREES;
    } while (!(zoo_abs(to[0]) < 1 && zoo_abs(to[1]) < 1));
    ZOO_UNROLL for (int k = 0; k < N_AGENTS; ++k) {
        const real along = N_AGENTS > 1 ? k * (LENGTH / (N_AGENTS - 1)) : 0;
        e.s.target[k][0] = from[0] + along * direction.x;
        e.s.target[k][1] = from[1] + along * direction.y;
    }
}

ZOO_FN void env_step(Env& e) {
    world_step(e);
}

ZOO_FN void env_score(Env& e) {
    score_targets(e, e.s.target);
}

ZOO_FN void env_observe(const Env& e, int i, Row o) {
    o = write_self(o, e.s, i);
    write_landmarks(o, e.s, i);
}

#include "zoo/entry.cuh"
