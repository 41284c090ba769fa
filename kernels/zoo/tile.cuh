// zoo/tile.cuh: the lane shape on a CPU. The rules run for a whole tile of environments in one
// loop, which the compiler turns into vector instructions with an environment in each lane.
//
// Nothing in that loop may stand in the compiler's way: the tile's state lies entry by entry
// already, the actions are brought into that order first, and rewards and flags leave it in that
// order. What is different for each environment, its statistics, reset and observations, comes
// afterwards, one environment at a time.
#pragma once

// What of the batch the rules read and write, in a tile's order.
struct Stage {
    alignas(64) u32 actions[N_ACTIONS][TILE];
    real reward[N_AGENTS][TILE];
    int terminated[N_AGENTS][TILE];  // as wide as the numbers: no narrower lane slows the loop down
};

ZOO_FN void stage_actions(const Io& io, int first, int begin, int end, Stage& stage) {
    ZOO_UNROLL for (int g = 0; g < N_GROUPS; ++g) {
        const int start = action_start(g), entries = action_entries(g);
        const size_t skipped = (size_t)(first + begin) * entries;
        const char* from = (const char*)io.actions[g] + skipped * sizeof(u32);
        for (int lane = begin; lane < end; ++lane)
            ZOO_UNROLL for (int k = 0; k < entries; ++k, from += sizeof(u32))
                memcpy(&stage.actions[start + k][lane], from, sizeof(u32));
    }
}

ZOO_FN void play_lane(const Io& io, char* tile, int first, int lane, Stage& stage) {
    State state;
    Scratch scratch;
    Outcome outcome;
    load_state(tile, lane, state);
    // g++ gives up on a loop that chooses by what is the same in all its rounds. An environment's
    // number is not, and shifted it is the 0 that makes the parameters look likewise.
    const Params params = plus_zero(params_of(io, first + lane), (first + lane) >> 31);
    const u32* const actions = &stage.actions[0][lane];
    const int time = io.steps[first + lane] + !io.frozen;
    Env e{io, params, state, scratch, outcome, first + lane, time, Rng{}, actions};
    play(e);
    for_each(i, N_AGENTS) {
        stage.reward[i][lane] = outcome.reward[i];
        stage.terminated[i][lane] = outcome.terminated[i];
    }
    store_state(tile, lane, state, false);
}

// Plays lanes `begin` to `end`. A function by itself, with an Io of its own, so that the loop can
// be seen to write neither; and nothing else that it reads, such as a table, lies in the stage.
static __attribute__((noinline)) void play_lanes(Io io, int first, int begin, int end,
                                                 Stage& __restrict__ stage) {
    char* const tile = state_tile(io, first);
    #pragma omp simd simdlen(16)
    for (int lane = begin; lane < end; ++lane) play_lane(io, tile, first, lane, stage);
}

ZOO_FN void finish_lane(const Io& io, char* tile, int first, int lane, const Stage& stage) {
    State state;
    Scratch scratch;
    Outcome outcome;
    load_state(tile, lane, state);
    const int env = first + lane;
    Env e{io, params_of(io, env), state, scratch, outcome, env, io.steps[env], Rng{}, nullptr};
    const bool rested = rests(io, env);
    if (!rested) {
        e.time += !io.frozen;
        env_survey(e);
    }
    for_each(i, N_AGENTS) {
        if (rested) continue;
        outcome.reward[i] = stage.reward[i][lane];
        outcome.terminated[i] = (u8)stage.terminated[i][lane];
    }
    const bool fresh = rested ? rest(e) : conclude(e);
    if (fresh) begin_episode(e);
    observe(e, io.observations);
    mask_actions(e);
    if (fresh) store_state(tile, lane, state, fresh);
}

// Steps what of environment `env`'s tile lies from there on and before `end`. Returns which
// environment is next.
ZOO_FN int step_tile(const Io& io, int env, int end) {
    const int first = env - env % TILE, begin = env - first;
    const int stop = end - first < TILE ? end - first : TILE;
    Stage stage;
    stage_actions(io, first, begin, stop, stage);
    for (int lane = begin; lane < stop;) {
        const int from = lane;  // those that rest divide the others
        while (lane < stop && !rests(io, first + lane)) lane += 1;
        if (from < lane) play_lanes(io, first, from, lane, stage);
        while (lane < stop && rests(io, first + lane)) lane += 1;
    }
    char* const tile = state_tile(io, first);
    for (int lane = begin; lane < stop; ++lane) finish_lane(io, tile, first, lane, stage);
    return first + stop;
}
