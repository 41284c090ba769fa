// ferry.cu: a toy with action masks. A coin says of each walker and step whether it is driven: then
// it must do 0, and earns 1. Else it may do 0 or 1, and earns `bonus` for 1. Nobody may do 2. The
// watcher's actions are free. See ferry.py.
#include "zoo/zoo.cuh"

constexpr int DISCRETE = 0, MULTI = 1;  // of SPACE; what comes after them is a box

// Whether walker i is driven in the step that follows, or in the one before.
ZOO_FN bool driven(const Env& e, int i) { return e.s.coins[e.time % COINS][i]; }
ZOO_FN bool was_driven(const Env& e, int i) { return e.s.coins[(e.time + COINS - 1) % COINS][i]; }

ZOO_FN void env_reset(Env& e) {
    if (!is_first_thread()) return;
    for (int t = 0; t < COINS; ++t)
        for (int i = 0; i < N; ++i) e.s.coins[t][i] = rng_integers(e.rng, 2);
}

ZOO_FN void env_step(Env&) {}

ZOO_FN void env_score(Env& e) {
    for_each(i, N_AGENTS) {
        const bool walks = i < N && (SPACE == DISCRETE || SPACE == MULTI);
        const bool was = walks && was_driven(e, i);
        const int action = walks ? e.action(i) : 0;
        const real bonus = walks && action == 1 ? e.p.bonus : real(0);
        e.reward(i) = was ? real(1) : bonus;
        e.terminated(i) = walks && !was && action == 0 && e.p.may_quit;
    }
}

ZOO_FN void env_observe(const Env& e, int i, Row o) {
    if (i < N) {
        o[0] = (float)was_driven(e, i);
        o[1] = (float)e.time / (float)e.p.max_cycles;
    } else {
        int count = 0;
        for (int j = 0; j < N; ++j) count += driven(e, j);
        o[0] = (float)count;
    }
}

ZOO_FN void env_mask(const Env& e, int i, MaskRow mask) {
    mask[1] = !driven(e, i);
    mask[2] = false;
    if (SPACE == MULTI) {  // the second component: who is driven must do 1
        const MaskRow second = mask + 3;
        second[0] = !driven(e, i);
    }
}

#include "zoo/entry.cuh"
