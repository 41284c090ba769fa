// zoo/env.cuh: what a kernel file sees of its environment.
//
//   e.s                the State declared in the spec, kept between steps
//   e.t                the Scratch declared in the spec, which lives for one step
//   e.p                the parameters
//   e.rng              random numbers; only in env_reset. Every thread has a copy, and the first
//                      thread's is kept: see rng_skipped() for drawing on several. What draws
//                      between resets has a generator of its own, a field of the state.
//   e.time             steps of the episode, this one included
//   e.active(i)        whether agent i is still in the game; it leaves after it terminates
//   e.action(i)        agent i's discrete action; e.action(i, k) is component k of a multi-discrete
//   e.control(i, k)    component k of agent i's continuous action
//   e.reward(i)        write: agent i's reward of this step
//   e.terminated(i)    write: true where agent i's episode ends by the rules
//
// Agents are numbered through the groups in the spec's order.
#pragma once

// A row of numbers to write, left to right: an agent's observation. A type of its own, so that a
// kernel does not depend on where its rows lie.
struct Row {
    float* at;
    ZOO_METHOD float& operator[](int k) const { return at[k]; }
    ZOO_METHOD Row operator+(int k) const { return Row{at + k}; }
};

// The same of an agent's action mask, an entry for each value of each component of its action:
// true where the agent may take it. All are true to begin with. Of a multi-discrete action with
// 3 and 2 values, `mask[k]` is the first component's and `(mask + 3)[k]` the second's.
struct MaskRow {
    bool* at;
    ZOO_METHOD bool& operator[](int k) const { return at[k]; }
    ZOO_METHOD MaskRow operator+(int k) const { return MaskRow{at + k}; }
};

struct Outcome {
    real reward[N_AGENTS];
    int going;      // whether an agent goes on after this step
    int start_row;  // of the pool, which the next episode begins with
    u8 terminated[N_AGENTS];
    u8 truncated[N_AGENTS];
};

// What an environment keeps for one step.
struct Workspace {
    Scratch scratch;
    Outcome outcome;
};
#if ZOO_GPU && !ZOO_LANE
  static_assert(sizeof(Workspace) <= WORKSPACE_BYTES, "gpu_zoo/prelude.py counts otherwise");
#endif

// Group g's entries in an environment's actions, and how many other groups' come before them.
ZOO_FN int action_entries(int g) {
    return group_count(g) * (action_size(g) > 0 ? action_size(g) : 1);
}
ZOO_FN int action_start(int g) {
    int start = 0;
    ZOO_UNROLL for (int other = 0; other < g; ++other) start += action_entries(other);
    return start;
}

struct Env {
    const Io& io;
    const Params& p;
    State& s;
    Scratch& t;
    Outcome& outcome;
    int env;
    int time;
    Rng rng;
    const u32* staged_actions;  // where a tile's are brought together (zoo/tile.cuh), else null

    // Row of agent i in a buffer of its group that holds `width` values an agent.
    ZOO_METHOD size_t row(int i, int width) const {
        const int g = group_of(i);
        return ((size_t)env * group_count(g) + (i - group_start(g))) * width;
    }
    ZOO_METHOD int action(int i, int k = 0) const {
        const int size = action_size(group_of(i));
        return (int)actions(i, size > 0 ? size : 1)[k * (staged_actions ? TILE : 1)];
    }
    ZOO_METHOD float control(int i, int k) const {
        const int size = action_size(group_of(i));
        return zoo_from_bits(actions(i, size)[k * (staged_actions ? TILE : 1)]);
    }
    // The first of the `width` entries of agent i's action.
    ZOO_METHOD const u32* actions(int i, int width) const {
        const int g = group_of(i);
        if (!staged_actions) return (const u32*)io.actions[g] + row(i, width);
        return staged_actions + (action_start(g) + (i - group_start(g)) * width) * TILE;
    }
    ZOO_METHOD bool active(int i) const {
#if ZOO_LEAVING
        return io.active[group_of(i)][row(i, 1)];
#else
        (void)i;
        return true;
#endif
    }
    ZOO_METHOD real& reward(int i) { return outcome.reward[i]; }
    ZOO_METHOD u8& terminated(int i) { return outcome.terminated[i]; }
};

// The parameters of environment `env`.
ZOO_FN const Params& params_of(const Io& io, int env) {
#if ZOO_VARIED
    return io.varied[env];
#else
    (void)env;
    return io.params;
#endif
}
