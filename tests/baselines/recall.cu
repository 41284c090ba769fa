// recall.cu: a toy to test memories with. Each agent is shown a colour before its first step, never
// again, and is paid for every step in which it names it. See test_recurrent.py.
#include "zoo/zoo.cuh"

ZOO_FN void env_reset(Env& e) {
    if (!is_first_thread()) return;
    for (int i = 0; i < N_AGENTS; ++i) e.s.colour[i] = rng_integers(e.rng, 2);
}

ZOO_FN void env_step(Env&) {}

ZOO_FN void env_score(Env& e) {
    for_each(i, N_AGENTS) e.reward(i) = (int)(e.action(i, 0) == e.s.colour[i]);
}

ZOO_FN void env_observe(const Env& e, int i, Row o) {
    const bool shown = e.time == 0;
    for (int k = 0; k < 2; ++k) o[k] = (float)(shown && k == e.s.colour[i]);
}

#include "zoo/entry.cuh"
