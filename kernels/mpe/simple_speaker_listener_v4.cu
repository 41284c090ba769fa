// simple_speaker_listener_v4.cu: a speaker that cannot move tells a listener where to go.
//
// Data: gpu_zoo/mpe/simple_speaker_listener_v4.py. Follows mpe2 1.1.1. Agents: speaker, listener.
//
//   env_reset    first thread  goal, then agents, then landmarks, uniform in the square
//   env_step     physics       two phases, see mpe/world.cuh
//   env_score    agent i       minus the listener's squared distance from the goal
//   env_observe  agent i       speaker [colour of the goal], listener [vel | landmarks | utterance]
#include "zoo/zoo.cuh"
#include "mpe/world.cuh"

constexpr int SPEAKER = 0;
constexpr int LISTENER = 1;

ZOO_FN void env_reset(Env& e) {
    if (!is_first_thread()) return;
    e.s.goal = rng_integers(e.rng, N_LANDMARKS);
    scatter_agents(e);
    scatter_landmarks(e, 1);
}

ZOO_FN void env_step(Env& e) {
    world_step(e);
}

ZOO_FN real score(const State& s) {
    return -squared(vec(s.pos[LISTENER]) - goal_position(s, s.goal));
}

ZOO_FN void env_score(Env& e) {
    for_each(i, N_AGENTS) e.reward(i) = score(e.s);
}

ZOO_FN void env_observe(const Env& e, int i, Row o) {
    if (i == SPEAKER) {
        write_one_hot(o, COLORS, e.s.goal, 0.65f, 0.15f);
    } else {
        o = write(o, vec(e.s.vel[i]));
        o = write_landmarks(o, e.s, i);
        write_utterance(o, e.s, SPEAKER);
    }
}

#if ZOO_INFO
// mpe2's benchmark data: the reward.
ZOO_FN void env_info(const Env& e, int, real* info) {
    info[0] = score(e.s);
}
#endif

#include "zoo/entry.cuh"
