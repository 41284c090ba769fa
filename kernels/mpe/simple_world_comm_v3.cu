// simple_world_comm_v3.cu: tag with food to eat, forests to hide in, and a leader that sees through.
//
// Data: gpu_zoo/mpe/simple_world_comm_v3.py. Follows mpe2 1.1.1. Agents: the leading adversary, the
// other adversaries, good agents. Landmarks: obstacles, food, forests.
//
//   env_reset    first thread  agents, then all landmarks, then food and forests once more
//   env_step     physics       two phases, see mpe/world.cuh
//   env_score    phase 1       good agent i: adversaries that touch it   (writes hits[i])
//                phase 2       agent i: its reward
//   env_observe  agent i       [vel | pos | landmarks | other agents | velocities of good agents |
//                              in which forests it is | what the leader says]; good agents have the
//                              forests before the velocities and do not hear the leader
#include "zoo/zoo.cuh"
#include "mpe/chase.cuh"

constexpr int LEADER = 0;
constexpr int FOOD = num_obstacles;  // the first landmark that is food
constexpr int FORESTS = num_obstacles + num_food;

ZOO_FN void env_reset(Env& e) {
    if (!is_first_thread()) return;
    scatter_agents(e);
    scatter_landmarks(e, R(0.9));
    scatter_landmarks(e, R(0.9), FOOD);
}

ZOO_FN void env_step(Env& e) {
    world_step(e);
}

ZOO_FN real adversary_reward(const Env& e, int i) {
    const State& s = e.s;
    real nearest = distance(s.pos[num_adversaries], s.pos[i]);
    ZOO_UNROLL for (int g = num_adversaries + 1; g < N_AGENTS; ++g)
        nearest = zoo_min(nearest, distance(s.pos[g], s.pos[i]));
    real reward = R(-0.1) * nearest;
    // Touch by touch, as mpe2 adds them up.
    ZOO_UNROLL for (int g = num_adversaries; g < N_AGENTS; ++g)
        ZOO_UNROLL for (int a = 0; a < num_adversaries; ++a) reward += a < e.t.hits[g] ? R(5) : 0;
    return reward;
}

ZOO_FN real good_reward(const Env& e, int i) {
    const State& s = e.s;
    real reward = R(-5 * e.t.hits[i]) - 2 * bound(s.pos[i][0]) - 2 * bound(s.pos[i][1]);
    real nearest = distance(s.landmark[FOOD], s.pos[i]);
    ZOO_UNROLL for (int l = FOOD; l < FORESTS; ++l) {
        nearest = zoo_min(nearest, distance(s.landmark[l], s.pos[i]));
        reward += touches_landmark(s, i, l) ? R(2) : 0;
    }
    return reward - R(0.05) * nearest;
}

ZOO_FN void env_score(Env& e) {
    count_hits(e);
    sync_env();

    for_each(i, N_AGENTS)
        e.reward(i) = is_adversary(i) ? adversary_reward(e, i) : good_reward(e, i);
}

// Whether agent i sees agent j: in the same forest, both outside of all, or i is the leader.
ZOO_FN bool sees(const State& s, int i, int j) {
    bool together = false, hidden = false;
    ZOO_UNROLL for (int f = FORESTS; f < N_LANDMARKS; ++f) {
        const bool here = touches_landmark(s, i, f), there = touches_landmark(s, j, f);
        together = together || (here && there);
        hidden = hidden || here || there;
    }
    return together || !hidden || i == LEADER;
}

ZOO_FN Row write_seen_agents(Row o, const State& s, int i) {
    ZOO_UNROLL for (int j = 0; j < N_AGENTS; ++j)
        if (j != i) o = write(o, sees(s, i, j) ? vec(s.pos[j]) - vec(s.pos[i]) : Vec{0, 0});
    return o;
}

ZOO_FN Row write_seen_velocities(Row o, const State& s, int i) {
    ZOO_UNROLL for (int j = num_adversaries; j < N_AGENTS; ++j)
        if (j != i) o = write(o, sees(s, i, j) ? vec(s.vel[j]) : Vec{0, 0});
    return o;
}

// 1 for a forest that agent i is in, else -1.
ZOO_FN Row write_forests(Row o, const State& s, int i) {
    ZOO_UNROLL for (int f = FORESTS; f < N_LANDMARKS; ++f)
        o[f - FORESTS] = touches_landmark(s, i, f) ? 1 : -1;
    return o + num_forests;
}

ZOO_FN void env_observe(const Env& e, int i, Row o) {
    o = write_self(o, e.s, i);
    o = write_landmarks(o, e.s, i);
    o = write_seen_agents(o, e.s, i);
    if (is_adversary(i)) {
        o = write_seen_velocities(o, e.s, i);
        o = write_forests(o, e.s, i);
        write_utterance(o, e.s, LEADER);
    } else {
        o = write_forests(o, e.s, i);
        write_seen_velocities(o, e.s, i);
    }
}

#include "zoo/entry.cuh"
