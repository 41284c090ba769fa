// simple_crypto_v3.cu: Alice tells Bob a secret under a key they share; Eve listens.
//
// Data: gpu_zoo/mpe/simple_crypto_v3.py. Follows mpe2 1.1.1. Agents: Eve, Bob, Alice. Nobody moves;
// the secret and the key are numbers of landmarks, whose positions only serve to be drawn.
//
//   env_reset    first thread  secret, key, then agents, then landmarks, uniform in the square
//   env_step     physics       two phases, see mpe/world.cuh
//   env_score    agent i       its reward
//   env_observe  agent i       Eve [Alice's words], Bob [key | Alice's words], Alice [secret | key]
#include "zoo/zoo.cuh"
#include "mpe/world.cuh"

constexpr int EVE = 0;
constexpr int BOB = 1;
constexpr int ALICE = 2;

ZOO_FN void env_reset(Env& e) {
    if (!is_first_thread()) return;
    e.s.goal = rng_integers(e.rng, N_LANDMARKS);
    e.s.key = rng_integers(e.rng, N_LANDMARKS);
    scatter_agents(e);
    scatter_landmarks(e, 1);
}

ZOO_FN void env_step(Env& e) {
    world_step(e);
}

// How far what agent i says is from the secret, squared; 0 if it says nothing.
ZOO_FN real miss(const State& s, int i) {
    real sum = 0;
    bool silent = true;
    ZOO_UNROLL for (int k = 0; k < DIM_C; ++k) {
        const real gap = s.utterance[i][k] - R(k == s.goal);
        sum += gap * gap;
        silent = silent && s.utterance[i][k] == 0;
    }
    return silent ? 0 : sum;
}

ZOO_FN void env_score(Env& e) {
    for_each(i, N_AGENTS)
        e.reward(i) = i == EVE ? -miss(e.s, EVE) : miss(e.s, EVE) - miss(e.s, BOB);
}

ZOO_FN void env_observe(const Env& e, int i, Row o) {
    if (i == ALICE) o = write_one_hot(o, DIM_C, e.s.goal);
    if (i != EVE) o = write_one_hot(o, DIM_C, e.s.key);
    if (i != ALICE) write_utterance(o, e.s, ALICE);
}

#if ZOO_INFO
// mpe2's benchmark data: what the agent says, and the secret.
ZOO_FN void env_info(const Env& e, int i, real* info) {
    ZOO_UNROLL for (int k = 0; k < DIM_C; ++k) {
        info[k] = e.s.utterance[i][k];
        info[DIM_C + k] = R(k == e.s.goal);
    }
}
#endif

#include "zoo/entry.cuh"
