// zoo/env.cuh: what a kernel file sees of its environment.
//
//   e.s                the State declared in the spec, kept between steps
//   e.t                the Scratch declared in the spec, which lives for one step
//   e.p                the parameters
//   e.rng              random numbers; only in env_reset, only on the first thread. What draws
//                      between resets has a generator of its own, a field of the state.
//   e.action(i)        agent i's discrete action
//   e.control(i, k)    component k of agent i's continuous action
//   e.reward(i)        write: agent i's reward of this step
//   e.terminated(i)    write: true where agent i's episode ends by the rules
//
// Agents are numbered through the groups in the spec's order.
#pragma once

// A row of numbers to write, left to right: an agent's observation. Neighbouring entries need not
// be neighbours in memory.
struct Row {
    float* at;
    ZOO_METHOD float& operator[](int k) const { return at[k]; }
    ZOO_METHOD Row operator+(int k) const { return Row{at + k}; }
};

struct Outcome {
    real reward[N_AGENTS];
    u8 terminated[N_AGENTS];
    u8 truncated[N_AGENTS];
};

// Where an environment's actions lie: the first entry of each group, and from one to the next.
struct Actions {
    const void* at[N_GROUPS];
    int pitch;
};

struct Env {
    const Io& io;
    const Params& p;
    State& s;
    Scratch& t;
    Outcome& outcome;
    int env;
    Actions actions;
    Rng rng;

    // Row of agent i in a buffer of its group that holds `width` values an agent.
    ZOO_METHOD size_t row(int i, int width) const {
        const int g = group_of(i);
        return ((size_t)env * group_count(g) + (i - group_start(g))) * width;
    }
    ZOO_METHOD int action(int i) const {
        const int g = group_of(i);
        return ((const int*)actions.at[g])[(i - group_start(g)) * actions.pitch];
    }
    ZOO_METHOD float control(int i, int k) const {
        const int g = group_of(i);
        const int entry = (i - group_start(g)) * action_size(g) + k;
        return ((const float*)actions.at[g])[entry * actions.pitch];
    }
    ZOO_METHOD real& reward(int i) { return outcome.reward[i]; }
    ZOO_METHOD u8& terminated(int i) { return outcome.terminated[i]; }
};
