// simple_tag_v3.cu: adversaries chase faster good agents around obstacles.
//
// Data: gpu_zoo/mpe/simple_tag_v3.py. Follows mpe2 1.1.1. Agents: adversaries first.
//
//   env_reset    first thread  agents, then obstacles, uniform in their squares
//   env_step     physics       two phases, see mpe/world.cuh
//   env_score    phase 1       good agent i: adversaries that touch it   (writes hits[i])
//                phase 2       agent i: its reward, whether all good agents are caught
//   env_observe  agent i       [vel | pos | obstacles | other agents | velocities of good agents]
#include "zoo/zoo.cuh"
#include "mpe/chase.cuh"

constexpr int FULL_SPEED_STAGE = 2;

// What the curriculum stage of the last reset leaves of a good agent's speed.
ZOO_FN real pace(const Env& e, int i) {
    return is_adversary(i) || e.s.stage == FULL_SPEED_STAGE ? R(1.0)
           : e.s.stage == 0                                 ? R(0.5)
                                                            : R(0.75);
}

ZOO_FN void env_reset(Env& e) {
    if (!is_first_thread()) return;
    e.s.stage = e.p.curriculum ? e.p.curriculum_stage : FULL_SPEED_STAGE;
    scatter_agents(e);
    scatter_landmarks(e, R(0.9));
}

ZOO_FN void env_step(Env& e) {
    world_step<pace>(e);
}

ZOO_FN void env_score(Env& e) {
    const State& s = e.s;
    count_hits(e);
    sync_env();

    for_each(i, N_AGENTS) {
        int hits = 0;
        bool caught = true;
        ZOO_UNROLL for (int g = num_adversaries; g < N_AGENTS; ++g) {
            hits += e.t.hits[g];
            caught &= e.t.hits[g] > 0;
        }
        if (is_adversary(i)) {
            e.reward(i) = R(10 * hits);
        } else {
            e.reward(i) = R(-10 * e.t.hits[i]) - bound(s.pos[i][0]) - bound(s.pos[i][1]);
        }
        e.terminated(i) = caught & (e.p.terminate_on_success != 0);
    }
}

// Velocities of the other good agents; of the nearest agents' slots if neighbours are limited.
ZOO_FN void write_velocities(Row o, const State& s, int i) {
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

ZOO_FN void env_observe(const Env& e, int i, Row o) {
    o = write_self(o, e.s, i);
    o = write_landmarks(o, e.s, i, num_landmark_neighbors);
    o = write_others(o, e.s, i, num_agent_neighbors);
    write_velocities(o, e.s, i);
}

#include "zoo/entry.cuh"
