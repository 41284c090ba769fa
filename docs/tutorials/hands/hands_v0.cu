// hands_v0.cu: rock, paper, scissors between two who may not show the same hand twice running.
//
// Data: hands_v0.py.
//
//   env_reset    first thread  nobody has shown a hand
//   env_step     player i      shows a hand                 (writes last[i])
//   env_score    player i      won, lost or neither         (reads both)
//   env_observe  player i      [own last | other's last], one-hot
//   env_mask     player i      the hand shown last is forbidden
#include "zoo/zoo.cuh"

ZOO_FN void env_reset(Env& e) {
    if (!is_first_thread()) return;
    e.s.last[0] = e.s.last[1] = -1;
}

ZOO_FN void env_step(Env& e) {
    for_each(i, N_AGENTS) e.s.last[i] = e.action(i);
}

// Each hand beats the one before it: paper rock, scissors paper, rock scissors.
ZOO_FN void env_score(Env& e) {
    for_each(i, N_AGENTS) {
        const int ahead = (e.s.last[i] - e.s.last[1 - i] + 3) % 3;
        e.reward(i) = ahead == 0 ? real(0) : ahead == 1 ? real(1) : real(-1);
    }
}

ZOO_FN void env_observe(const Env& e, int i, Row o) {
    ZOO_UNROLL for (int hand = 0; hand < 3; ++hand) {
        o[hand] = e.s.last[i] == hand;
        o[3 + hand] = e.s.last[1 - i] == hand;
    }
}

// --8<-- [start:mask]
ZOO_FN void env_mask(const Env& e, int i, MaskRow mask) {
    ZOO_UNROLL for (int hand = 0; hand < 3; ++hand) mask[hand] = hand != e.s.last[i];
}
// --8<-- [end:mask]

#include "zoo/entry.cuh"
