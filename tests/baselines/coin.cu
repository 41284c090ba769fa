// coin.cu: a toy to test critics with. A coin is thrown for each episode; every step pays everybody
// what it shows, whatever they do. Only the teller sees it. See test_central.py.
#include "zoo/zoo.cuh"

ZOO_FN void env_reset(Env& e) {
    if (is_first_thread()) e.s.coin = 2 * rng_integers(e.rng, 2) - 1;
}

ZOO_FN void env_step(Env&) {}

ZOO_FN void env_score(Env& e) {
    for_each(i, N_AGENTS) e.reward(i) = e.s.coin;
}

ZOO_FN void env_observe(const Env& e, int i, Row o) {
    if (group_of(i) == 0) {
        o[0] = (float)e.s.coin;
    } else {
        o[0] = 0.0f;
        o[1] = 1.0f;
    }
}

#include "zoo/entry.cuh"
