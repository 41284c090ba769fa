// simple_spread_v3.cu: N agents cover N landmarks and should not bump into each other.
//
// Data: gpu_zoo/mpe/simple_spread_v3.py. Follows mpe2 1.1.1.
//
//   env_reset    first thread  agents, then landmarks, uniform in the square
//   env_step     physics       two phases, see mpe/world.cuh
//   env_score    phase 1       landmark l: distance to its nearest agent   (writes cover[l])
//                phase 2       agent i: its reward, whether all is covered
//   env_observe  agent i       [vel | pos | landmarks | other agents | their utterances, always 0]
#include "zoo/zoo.cuh"
#include "mpe/world.cuh"

constexpr real COVER_RADIUS = R(0.1);

ZOO_FN void env_reset(Env& e) {
    if (!is_first_thread()) return;
    scatter_agents(e);
    scatter_landmarks(e, 1);
}

ZOO_FN void env_step(Env& e) {
    world_step(e);
}

ZOO_FN int collisions(const State& s, int i) {
    int count = 0;
    ZOO_UNROLL for (int j = 0; j < N_AGENTS; ++j)
        if (j != i && agents_touch(s, i, j)) count += 1;
    return count;
}

ZOO_FN void env_score(Env& e) {
    const State& s = e.s;
    for_each(l, N_LANDMARKS) {
        real nearest = squared(vec(s.pos[0]) - vec(s.landmark[l]));
        ZOO_UNROLL for (int i = 1; i < N_AGENTS; ++i)
            nearest = zoo_min(nearest, squared(vec(s.pos[i]) - vec(s.landmark[l])));
        e.t.cover[l] = zoo_sqrt(nearest);
    }
    sync_env();

    const bool penalty = !e.p.curriculum || e.p.curriculum_stage > 0;
    for_each(i, N_AGENTS) {
        real shared = 0;
        bool covered = true;
        ZOO_UNROLL for (int l = 0; l < N_LANDMARKS; ++l) {
            shared -= e.t.cover[l];
            covered &= e.t.cover[l] < COVER_RADIUS;
        }
        const real own = penalty ? -R(collisions(s, i)) : 0;
        e.reward(i) = shared * (1 - e.p.local_ratio) + own * e.p.local_ratio;
        e.terminated(i) = covered & (e.p.terminate_on_success != 0);
    }
}

ZOO_FN void env_observe(const Env& e, int i, Row o) {
    o = write_self(o, e.s, i);
    o = write_landmarks(o, e.s, i, num_landmark_neighbors);
    o = write_others(o, e.s, i, num_agent_neighbors);
    write_zeros(o, DIM_C * N_OTHERS_SEEN);
}

#if ZOO_INFO
// mpe2's benchmark data: [score, collisions, summed distances, landmarks covered].
ZOO_FN void env_info(const Env& e, int i, real* info) {
    real distances = 0, score = 0;
    int covered = 0;
    ZOO_UNROLL for (int l = 0; l < N_LANDMARKS; ++l) {
        distances += e.t.cover[l];
        score -= e.t.cover[l];
        covered += e.t.cover[l] < COVER_RADIUS;
    }
    const int hits = collisions(e.s, i);
    info[0] = score - R(hits);
    info[1] = R(hits);
    info[2] = distances;
    info[3] = R(covered);
}
#endif

#include "zoo/entry.cuh"
