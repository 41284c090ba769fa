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

// Group g's entries in an environment's actions.
ZOO_FN int action_entries(int g) {
    return group_count(g) * (action_size(g) > 0 ? action_size(g) : 1);
}

ZOO_FN void stage_actions(const Io& io, int first, Stage& stage) {
    int start = 0;
    ZOO_UNROLL for (int g = 0; g < N_GROUPS; ++g) {
        const int entries = action_entries(g);
        const char* from = (const char*)io.actions[g] + (size_t)first * entries * sizeof(u32);
        for (int lane = 0; lane < TILE; ++lane)
            ZOO_UNROLL for (int k = 0; k < entries; ++k, from += sizeof(u32))
                memcpy(&stage.actions[start + k][lane], from, sizeof(u32));
        start += entries;
    }
}

ZOO_FN Actions staged_actions(const Stage& stage, int lane) {
    Actions actions;
    actions.pitch = TILE;
    int start = 0;
    ZOO_UNROLL for (int g = 0; g < N_GROUPS; ++g) {
        actions.at[g] = &stage.actions[start][lane];
        start += action_entries(g);
    }
    return actions;
}

ZOO_FN void play_lane(const Io& io, char* tile, int first, int lane, Stage& stage) {
    State state;
    Scratch scratch;
    Outcome outcome;
    load_state(tile, lane, state);
    // g++ gives up on a loop that chooses by what is the same in all its rounds. An environment's
    // number is not, and shifted it is the 0 that makes the parameters look likewise.
    const Params params = plus_zero(io.params, (first + lane) >> 31);
    const Actions actions = staged_actions(stage, lane);
    Env e{io, params, state, scratch, outcome, first + lane, actions, Rng{}};
    play(e);
    for_each(i, N_AGENTS) {
        stage.reward[i][lane] = outcome.reward[i];
        stage.terminated[i][lane] = outcome.terminated[i];
    }
    store_state(tile, lane, state, false);
}

ZOO_FN void conclude_lane(const Io& io, char* tile, int first, int lane, const Stage& stage) {
    State state;
    Scratch scratch;
    Outcome outcome;
    load_state(tile, lane, state);
    const int env = first + lane;
    Env e{io, io.params, state, scratch, outcome, env, actions_of(io, env), Rng{}};
    for_each(i, N_AGENTS) {
        outcome.reward[i] = stage.reward[i][lane];
        outcome.terminated[i] = (u8)stage.terminated[i][lane];
    }
    const bool fresh = conclude(e, io.steps[env] + 1);
    observe(e, io.observations);
    if (fresh) store_state(tile, lane, state, fresh);
}

// A function by itself, with an Io of its own, so that the loop can be seen to write neither.
static __attribute__((noinline)) void play_tile(Io io, int first, Stage& stage) {
    io.frozen = 0;
    char* const tile = state_tile(io, first);
    #pragma omp simd simdlen(16)
    for (int lane = 0; lane < TILE; ++lane) play_lane(io, tile, first, lane, stage);
}

ZOO_FN void step_tile(const Io& io, int first) {
    Stage stage;
    stage_actions(io, first, stage);
    play_tile(io, first, stage);
    char* const tile = state_tile(io, first);
    for (int lane = 0; lane < TILE; ++lane) conclude_lane(io, tile, first, lane, stage);
}

// Whether `first` to `end` begins with a whole tile whose environments all take a step of the
// rules. Where some are reset or stand still instead, one at a time is as fast.
ZOO_FN bool plays_as_tile(const Io& io, int first, int end) {
    if (first % TILE != 0 || end - first < TILE || io.frozen) return false;
    u8 ended = 0;
    for (int lane = 0; lane < TILE; ++lane) ended |= io.done[first + lane];
    return io.autoreset == SAME_STEP || !ended;
}
