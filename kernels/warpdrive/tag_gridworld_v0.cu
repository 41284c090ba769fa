// tag_gridworld_v0.cu: taggers chase one runner from cell to cell.
//
// Data: gpu_zoo/warpdrive/tag_gridworld_v0.py. Follows WarpDrive's CPU rules. Agents: taggers first,
// the runner last. Coordinates run from 0 to grid_length, both ends included.
//
//   env_reset    agent i     its cell
//   env_step     agent i     move, stop at the wall
//   env_survey   phase 1     nobody is near
//                phase 2     tagger i: is it in the runner's cell, and how far  (tagged, nearest)
//   env_score    agent i     its reward
//   env_observe  agent i     where all are, or itself and one other; the time
#include "zoo/zoo.cuh"

constexpr int RUNNER = num_taggers;

ZOO_FN bool is_tagger(int i) { return i < num_taggers; }

// Where a tagger starts along an axis: not at the wall.
ZOO_FN int draw_place(Rng& rng, int length) {
    return zoo_min((int)rng_uniform(rng, 1, (real)length), length - 1);
}

// Two draws an agent, each from its own place in the stream.
ZOO_FN void env_reset(Env& e) {
    const int length = e.p.grid_length;
    for_each(i, N_AGENTS) {
        Rng rng = rng_skipped(e.rng, 2 * i);
        const int x = e.p.fixed_start ? length / 2 : draw_place(rng, length);
        const int y = e.p.fixed_start ? length / 2 : draw_place(rng, length);
        e.s.x[i] = is_tagger(i) ? x : 0;
        e.s.y[i] = is_tagger(i) ? y : 0;
        e.s.at_wall[i] = 0;
    }
    if (is_first_thread()) e.rng = rng_skipped(e.rng, 2 * N_AGENTS);
}

ZOO_FN void env_step(Env& e) {
    State& s = e.s;
    for_each(i, N_AGENTS) {
        const int action = e.action(i);
        const int x = s.x[i] + (action == 1) - (action == 2);
        const int y = s.y[i] + (action == 3) - (action == 4);
        s.x[i] = zoo_min(zoo_max(x, 0), e.p.grid_length);
        s.y[i] = zoo_min(zoo_max(y, 0), e.p.grid_length);
        s.at_wall[i] = (x != s.x[i]) | (y != s.y[i]);
    }
}

// The nearest tagger is the least of (squared distance, number), in one word. Each thread first
// finds its own taggers' least.
ZOO_FN void env_survey(Env& e) {
    const State& s = e.s;
    if (is_first_thread()) e.t.tagged = 0, e.t.nearest = ~0ull;
    sync_env();

    int tagged = 0;
    u64 nearest = ~0ull;
    for_each(i, num_taggers) {
        const u32 dx = s.x[i] - s.x[RUNNER], dy = s.y[i] - s.y[RUNNER];
        const u32 square = dx * dx + dy * dy;
        tagged |= square == 0;
        if (!use_full_observation) nearest = zoo_min(nearest, (u64)square << 32 | (u32)i);
    }
    if (tagged) team_or(e.t.tagged, 1);
    if (!use_full_observation) team_min(e.t.nearest, nearest);
}

ZOO_FN void env_score(Env& e) {
    const Params& p = e.p;
    const bool tagged = e.t.tagged;
    const real taggers_get = tagged ? p.tag_reward_for_tagger : -p.step_cost_for_tagger;
    const real runner_gets = tagged ? -p.tag_penalty_for_runner : p.step_cost_for_tagger;
    for_each(i, N_AGENTS) {
        const real reward = is_tagger(i) ? taggers_get : runner_gets;
        e.reward(i) = e.s.at_wall[i] ? reward - p.wall_hit_penalty : reward;
        e.terminated(i) = tagged;
    }
}

ZOO_FN void env_observe(const Env& e, int i, Row o) {
    const State& s = e.s;
    const real length = e.p.grid_length;
    if (use_full_observation) {
        for (int k = 0; k < N_AGENTS; ++k) o[k] = (float)(s.x[k] / length);
        for (int k = 0; k < N_AGENTS; ++k) o[N_AGENTS + k] = (float)(s.y[k] / length);
        for (int k = 0; k < N_AGENTS; ++k) o[2 * N_AGENTS + k] = !is_tagger(k);
        for (int k = 0; k < N_AGENTS; ++k) o[3 * N_AGENTS + k] = k == i;
        o[4 * N_AGENTS] = (float)((real)e.time / (real)e.p.episode_length);
    } else {
        const int other = is_tagger(i) ? RUNNER : (int)(u32)e.t.nearest;
        o[0] = (float)(s.x[i] / length);
        o[1] = (float)(s.y[i] / length);
        o[2] = (float)(s.x[other] / length);
        o[3] = (float)(s.y[other] / length);
        o[4] = !is_tagger(i);
        o[5] = (float)((real)e.time / (real)e.p.episode_length);
    }
}

#include "zoo/entry.cuh"
