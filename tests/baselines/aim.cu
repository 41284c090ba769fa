// aim.cu: a toy to test continuous actions with. Each agent is shown a target, 1 or -1, before its
// first step, never again, and pays for every step the square of how far off it aims. See
// test_options.py.
#include "zoo/zoo.cuh"

ZOO_FN void env_reset(Env& e) {
    if (!is_first_thread()) return;
    for (int i = 0; i < N_AGENTS; ++i) e.s.target[i] = 2 * rng_integers(e.rng, 2) - 1;
}

ZOO_FN void env_step(Env&) {}

ZOO_FN void env_score(Env& e) {
    for_each(i, N_AGENTS) {
        const real off = (real)e.control(i, 0) - (real)e.s.target[i];
        e.reward(i) = -off * off;
    }
}

ZOO_FN void env_observe(const Env& e, int i, Row o) {
    o[0] = e.time == 0 ? (float)e.s.target[i] : 0.0f;
    o[1] = 1.0f;
}

#include "zoo/entry.cuh"
