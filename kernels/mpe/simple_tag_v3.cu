// simple_tag_v3.cu: adversaries chase faster good agents around obstacles.
//
// Data: gpu_zoo/mpe/simple_tag_v3.py. Follows mpe2 1.1.1. Agents: adversaries first.
//
//   env_reset    first thread  agents, then obstacles, uniform in their squares
//   env_step     physics       two phases, see mpe/world.cuh
//                phase 3       good agent i: adversaries that touch it   (writes hits[i])
//                phase 4       agent i: its reward, whether all good agents are caught
//   env_observe  agent i: [vel | pos | obstacles | other agents | velocities of good agents]
#include "zoo/zoo.cuh"

constexpr bool LANDMARKS_COLLIDE = true;
constexpr real LANDMARK_SIZE = 0.2;
#include "mpe/world.cuh"

constexpr int FULL_SPEED_STAGE = 2;

ZOO_FN bool is_adversary(int i) { return i < num_adversaries; }

// What the curriculum stage of the last reset leaves of a good agent's speed.
ZOO_FN real prey_speed(const Env& e) {
    return e.s.stage == 0 ? R(0.5) : e.s.stage == 1 ? R(0.75) : R(1.0);
}

ZOO_FN real agent_size(int i) { return is_adversary(i) ? R(0.075) : R(0.05); }
ZOO_FN real agent_accel(const Env& e, int i) {
    return is_adversary(i) ? R(3.0) : R(4.0) * prey_speed(e);
}
ZOO_FN real agent_max_speed(const Env& e, int i) {
    return is_adversary(i) ? R(1.0) : R(1.3) * prey_speed(e);
}

ZOO_FN void env_reset(Env& e) {
    if (is_first_thread()) e.s.stage = e.p.curriculum ? e.p.curriculum_stage : FULL_SPEED_STAGE;
    scatter(e, R(0.9));
}

// Cost of leaving the square in one coordinate.
ZOO_FN real bound(real x) {
    const real far = zoo_abs(x);
    if (far < R(0.9)) return 0;
    if (far < R(1.0)) return (far - R(0.9)) * 10;
    return zoo_min(real_exp(2 * far - 2), R(10));
}

ZOO_FN void env_step(Env& e) {
    const State& s = e.s;
    world_step(e);

    for_each(i, N_AGENTS) {
        int hits = 0;
        ZOO_UNROLL for (int a = 0; a < num_adversaries; ++a)
            if (!is_adversary(i) && agents_touch(s, a, i)) hits += 1;
        e.t.hits[i] = hits;
    }
    sync_env();

    for_each(i, N_AGENTS) {
        int hits = 0;
        bool caught = true;
        ZOO_UNROLL for (int g = num_adversaries; g < N_AGENTS; ++g) {
            hits += e.t.hits[g];
            caught = caught && e.t.hits[g] > 0;
        }
        if (is_adversary(i)) {
            e.reward(i) = R(10 * hits);
        } else {
            e.reward(i) = R(-10 * e.t.hits[i]) - bound(s.pos[i][0]) - bound(s.pos[i][1]);
        }
        e.terminated(i) = e.p.terminate_on_success && caught;
    }
}

// Velocities of the other good agents; of the nearest agents' slots if neighbours are limited.
ZOO_FN void write_velocities(float* o, const State& s, int i) {
    if (num_agent_neighbors != ALL) write_zeros(o, 2 * num_agent_neighbors);
    ZOO_UNROLL for (int j = num_adversaries; j < N_AGENTS; ++j) {
        if (j == i) continue;
        if (num_agent_neighbors == ALL) {
            o = write(o, vec(s.vel[j]));
        } else {
            const int slot = nearness(s.pos[i], s.pos, N_AGENTS, j, i);
            if (slot < num_agent_neighbors) write(o + 2 * slot, vec(s.vel[j]));
        }
    }
}

ZOO_FN void env_observe(Env& e) {
    const State& s = e.s;
    for_each(i, N_AGENTS) {
        float* o = e.obs(i);
        o = write_self(o, s, i);
        o = write_landmarks(o, s, i, num_landmark_neighbors);
        o = write_others(o, s, i, num_agent_neighbors);
        write_velocities(o, s, i);
    }
}

#if ZOO_INFO
// mpe2's benchmark data: how many good agents an adversary touches; 0 for good agents.
ZOO_FN void env_info(Env& e) {
    for_each(i, N_AGENTS) {
        int touches = 0;
        ZOO_UNROLL for (int g = num_adversaries; g < N_AGENTS; ++g)
            if (is_adversary(i) && agents_touch(e.s, g, i)) touches += 1;
        e.info(i)[0] = R(touches);
    }
}
#endif

#include "zoo/entry.cuh"
