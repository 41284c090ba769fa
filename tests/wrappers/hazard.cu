// hazard.cu: agents that end one by one at known steps, to test with what a library is told of ends.
//
// What an agent observes and earns says which agent, step and episode it belongs to, so that one that
// is lost, repeated or foreign is seen. Who has left observes -1 everywhere: nobody may look at that.
#include "zoo/zoo.cuh"

ZOO_FN int end_of(const Env& e, int i) {
    return i == 0 ? e.p.first_end : i == 1 ? e.p.second_end : e.p.third_end;
}

ZOO_FN void env_reset(Env& e) {
    if (is_first_thread()) e.s.episode += 1;
    for_each(i, N_AGENTS) e.s.last_action[i] = 0;
}

ZOO_FN void env_step(Env& e) {
    for_each(i, N_AGENTS) e.s.last_action[i] = e.action(i);
}

ZOO_FN void env_score(Env& e) {
    for_each(i, N_AGENTS) {
        e.reward(i) = (real)(100 * i + e.time);
        e.terminated(i) = end_of(e, i) > 0 && e.time >= end_of(e, i);
    }
}

ZOO_FN void env_observe(const Env& e, int i, Row o) {
    const bool here = end_of(e, i) == 0 || e.time <= end_of(e, i);
    o[0] = here ? (float)i : -1;
    o[1] = here ? (float)e.time : -1;
    o[2] = here ? (float)e.s.episode : -1;
    o[3] = here ? (float)e.s.last_action[i] : -1;
}

ZOO_FN void env_mask(const Env& e, int i, MaskRow mask) { mask[2] = (e.time + i) % 2 == 0; }

#include "zoo/entry.cuh"
