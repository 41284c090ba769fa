// stay_or_go.cu: a toy to test the trainer with. Agents of a good mood gain by staying, and by
// naming the colour they see; those of a bad one lose until they leave. See test_leaving.py.
//
// An agent that has left goes on observing: a decoy, what one of a good mood sees at the start.
#include "zoo/zoo.cuh"

ZOO_FN void env_reset(Env& e) {
    if (!is_first_thread()) return;
    for (int i = 0; i < N_AGENTS; ++i) {
        e.s.mood[i] = 2 * rng_integers(e.rng, 2) - 1;
        e.s.colour[i] = rng_integers(e.rng, 3);
    }
}

ZOO_FN void env_step(Env&) {}

ZOO_FN void env_score(Env& e) {
    for_each(i, N_AGENTS) {
        const bool leaves = e.action(i, 0) == 1;
        const bool right = e.action(i, 1) == e.s.colour[i];
        const int gain = e.s.mood[i] > 0 ? (int)right : -1;
        e.reward(i) = leaves ? 0 : gain;
        e.terminated(i) = leaves;
    }
}

ZOO_FN void env_observe(const Env& e, int i, Row o) {
    const bool here = e.active(i);
    o[0] = (float)(here ? e.s.mood[i] : 1);
    o[1] = (float)(here ? e.time : 0) / (float)e.p.max_cycles;
    for (int k = 0; k < 3; ++k) o[2 + k] = (float)(k == e.s.colour[i]);
}

#include "zoo/entry.cuh"
