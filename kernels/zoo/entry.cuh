// zoo/entry.cuh: included last by every kernel file; the same for all environments.
//
// Expects of the kernel file
//   env_reset(Env&)                       a fresh state
//   env_step(Env&)                        the state one step later
//   env_survey(Env&)                      optional: what env_score and env_observe both need of
//                                         the state, written to Scratch
//   env_score(Env&)                       rewards and terminations of the state after the step
//   env_observe(const Env&, i, Row)       writes agent i's observation, obs_size(group_of(i)) long
//   env_info(const Env&, i, real*)        writes agent i's info values, if the spec declares any
//   env_mask(const Env&, i, MaskRow)      which actions agent i may take after this observation, if
//                                         the spec says that they are masked
// all threads of the environment call them together, but for the last three, which read only what
// is finished, one call an agent. Owns what no kernel file should: episodes, the time limit,
// autoreset, episode statistics, and the three entry points zoo_reset, zoo_step, zoo_observe.
#pragma once

// Values of gymnasium.vector.AutoresetMode, in gpu_zoo/vector.py's numbering.
constexpr int SAME_STEP = 0;
constexpr int DISABLED = 2;

// A kernel without a survey of its own has this one: its env_survey(Env&) would be a better match.
struct AnyEnv {
    ZOO_METHOD AnyEnv(Env&) {}
};
ZOO_FN void env_survey(AnyEnv) {}

ZOO_FN void observe(const Env& e, float* const* into) {
    for_each(i, N_AGENTS) {
        const int g = group_of(i);
        env_observe(e, i, Row{into[g] + e.row(i, obs_size(g))});
    }
}

ZOO_FN void inform(const Env& e) {
#if ZOO_INFO
    for_each(i, N_AGENTS) {
        const int g = group_of(i);
        if (info_size(g) > 0) env_info(e, i, e.io.infos[g] + e.row(i, info_size(g)));
    }
#endif
    (void)e;
}

// Whether the environment's episode ended with an earlier step, so that this one does not play.
ZOO_FN bool rests(const Io& io, int env) { return io.autoreset != SAME_STEP && io.done[env]; }

// Which actions may be taken next. Those of who takes none, having left or in an episode that is
// over, are all allowed: no policy has to choose from none, and no check stops at them.
ZOO_FN void mask_actions(const Env& e) {
#if ZOO_MASKED
    const bool over = rests(e.io, e.env);
    for_each(i, N_AGENTS) {
        const int g = group_of(i), size = mask_size(g);
        if (size == 0) continue;
        const MaskRow mask{(bool*)e.io.action_masks[g] + e.row(i, size)};
        for (int k = 0; k < size; ++k) mask[k] = true;
        if (!over && e.active(i)) env_mask(e, i, mask);
    }
#endif
    (void)e;
}

ZOO_FN void begin_episode(Env& e) {
    e.time = 0;
    e.rng = e.io.rng[e.env];
#if !ZOO_REFERENCE
    e.rng.episode += 1;  // a fresh stream for every episode, whatever the last one drew
    e.rng.draw = 0;
#endif
    if (is_first_thread()) e.io.steps[e.env] = 0;
    for_each(i, N_AGENTS) {
        const int g = group_of(i);
        e.io.episode_returns[g][e.row(i, 1)] = 0;
#if ZOO_LEAVING
        e.io.active[g][e.row(i, 1)] = 1;
#endif
    }
    env_reset(e);
    sync_env();
#if ZOO_POOL
    if (is_first_thread()) e.outcome.start_row = rng_integers(e.rng, e.io.pool_rows);
    sync_env();
    copy_start(e.s, e.io.pool[e.outcome.start_row], e.io.pool_fields);
    sync_env();
#endif
    if (is_first_thread()) e.io.rng[e.env] = e.rng;
    env_survey(e);
    sync_env();
}

// Rewards and flags of the step go from where the rules wrote them to the batch's buffers.
ZOO_FN void publish(Env& e) {
    for_each(i, N_AGENTS) {
        const int g = group_of(i);
        const size_t at = e.row(i, 1);
        e.io.rewards[g][at] = e.outcome.reward[i];
        e.io.terminations[g][at] = e.outcome.terminated[i];
        e.io.truncations[g][at] = e.outcome.truncated[i];
    }
}

ZOO_FN void clear_outcome(Env& e) {
    for_each(i, N_AGENTS) {
        e.outcome.reward[i] = 0;
        e.outcome.terminated[i] = 0;
        e.outcome.truncated[i] = 0;
#if ZOO_INFO
        const int g = group_of(i);
        for (int k = 0; k < info_size(g); ++k) e.io.infos[g][e.row(i, info_size(g)) + k] = 0;
#endif
    }
}

// An agent that has left stays terminated and earns nothing. One that terminates now leaves.
ZOO_FN void leave(Env& e, int i) {
#if ZOO_LEAVING
    const int g = group_of(i);
    if (!e.active(i)) {
        e.outcome.reward[i] = 0;
        e.outcome.terminated[i] = 1;
    }
    e.io.active[g][e.row(i, 1)] = !e.outcome.terminated[i];
#endif
    (void)e, (void)i;
}

// The time limit. At the limit an agent is truncated; may it be terminated too? The spec says.
// Returns whether the whole environment's episode is over; every thread gets the same answer.
ZOO_FN bool end_step(Env& e) {
    const bool timeout = e.time >= time_limit(e.p);
    if (is_first_thread()) e.outcome.going = 0;
    sync_env();
    int going = 0;
    for_each(i, N_AGENTS) {
        if (timeout && TIMEOUT_WINS) e.outcome.terminated[i] = 0;
        e.outcome.truncated[i] = timeout;
        leave(e, i);
        going |= !(e.outcome.terminated[i] || timeout);
    }
    if (going) team_or(e.outcome.going, 1);
    sync_env();
    return !e.outcome.going;
}

ZOO_FN void count_returns(Env& e, bool done) {
    for_each(i, N_AGENTS) {
        const int g = group_of(i);
        const size_t at = e.row(i, 1);
        const real total = e.io.episode_returns[g][at] + e.outcome.reward[i];
        e.io.episode_returns[g][at] = total;
        if (done) e.io.last_returns[g][at] = total;
    }
    if (is_first_thread()) {
        e.io.steps[e.env] = e.time;
        e.io.done[e.env] = done;
        if (done) e.io.last_lengths[e.env] = e.time;
    }
}

// One step of the rules.
ZOO_FN void play(Env& e) {
    for_each(i, N_AGENTS) e.outcome.terminated[i] = 0;
    if (!e.io.frozen) env_step(e);
    sync_env();
    env_survey(e);
    sync_env();
    env_score(e);
    sync_env();
    inform(e);
}

// What follows from a step of the rules. Returns whether the next episode begins.
ZOO_FN bool conclude(Env& e) {
    const bool done = end_step(e);
    count_returns(e, done);
    publish(e);
    if (!done || e.io.autoreset != SAME_STEP) return false;
    observe(e, e.io.final_observations);
    sync_env();
    return true;
}

// Before an episode begins other than with the step that ended the last one. Returns that it does.
ZOO_FN bool clear(Env& e) {
    clear_outcome(e);
    publish(e);
    if (is_first_thread()) e.io.done[e.env] = 0;
    return true;
}

// A step of an environment that rests. Returns whether the next episode begins.
ZOO_FN bool rest(Env& e) {
    if (e.io.autoreset != DISABLED) return clear(e);
    env_survey(e);  // it stays as it ended, until reset with a mask
    return false;
}

// Returns whether the next episode begins.
ZOO_FN bool step_env(Env& e, bool resting) {
    if (resting) return rest(e);
    e.time += !e.io.frozen;
    play(e);
    return conclude(e);
}

#if ZOO_GPU && ZOO_LANE
  #include "zoo/warp.cuh"
#else
  constexpr bool NEIGHBOURS_HELP = false;
  ZOO_FN void show(const Env& e, bool) { observe(e, e.io.observations); }
#endif

// Who works on the environment shares its workspace.
#if ZOO_LANE || !(ZOO_GPU || defined(ZOO_EMULATE) || ZOO_WORKSPACE_IN_MEMORY)
  #define ZOO_WORKSPACE(io) Workspace workspace
#elif !(ZOO_GPU || defined(ZOO_EMULATE))
  #define ZOO_WORKSPACE(io) static thread_local Workspace workspace  // too large for a stack
#elif ZOO_GPU && ZOO_WORKSPACE_IN_MEMORY
  #define ZOO_WORKSPACE(io) \
      Workspace& workspace = ((Workspace*)io.workspaces)[block_index() / ZOO_TEAM_BLOCKS]
#else
  #define ZOO_WORKSPACE(io)                                     \
      ZOO_BLOCK_SHARED Workspace block_workspaces[ZOO_BLOCK_TEAMS]; \
      Workspace& workspace = block_workspaces[team_of_block()]
#endif

enum Operation { RESET, STEP, OBSERVE };

template <Operation operation>
ZOO_FN void run(const Io& io, int env) {
    ZOO_WORKSPACE(io);
    const bool here = env < io.num_envs && (operation != RESET || io.reset_mask[env]);
    if (!here && !NEIGHBOURS_HELP) return;
#if ZOO_LANE
    State state;
    if (here) load_state(state_tile(io, env), env % TILE, state);
#else
    State& state = ((State*)io.state)[env];
#endif
    const int time = here ? io.steps[env] : 0;
    Env e{io, params_of(io, here ? env : 0), state, workspace.scratch, workspace.outcome,
          env, time, Rng{}, nullptr};
    const bool resting = here && rests(io, env);
    sync_env();  // the first thread is about to write what all have read
    bool fresh = false;
    if (here && operation == RESET) fresh = clear(e);
    if (here && operation == STEP) fresh = step_env(e, resting);
    if (here && fresh) begin_episode(e);
    if (here && operation == OBSERVE) env_survey(e);
    sync_env();
    show(e, here);
    if (here) mask_actions(e);
#if ZOO_LANE
    if (here && operation != OBSERVE) store_state(state_tile(io, env), env % TILE, state, fresh);
#else
    (void)fresh;
    sync_env();  // shared variables are free for the block's next environment
#endif
}

#if ZOO_SPREAD && ZOO_GPU
  #define ZOO_MEET(io) meet_at((io)->arrivals)
#else
  #define ZOO_MEET(io)
#endif

// The environment that a thread begins with.
#if ZOO_GPU || defined(ZOO_EMULATE)
  #if ZOO_LANE
    ZOO_FN int first_env() { return block_thread(); }
  #else
    ZOO_FN int first_env() {
        return (block_index() * ZOO_BLOCK_TEAMS + team_of_block()) / ZOO_TEAM_BLOCKS;
    }
  #endif
#endif

// Entry points. A GPU gets a grid; the CPU gets a range of environments a call.
#if ZOO_GPU
  #if ZOO_LANE
    // Blocks that an SM must have room for. More of them hide more waiting, but leave a thread
    // fewer registers: as many as need no spills.
    constexpr int MIN_BLOCKS = N_AGENTS > 4 ? 2 : ZOO_REFERENCE ? 3 : 5;
    #define ZOO_ENTRY(name, operation)                                                     \
        extern "C" __global__ void                                                          \
        __launch_bounds__(LANE_THREADS, MIN_BLOCKS) name(const Io* __restrict__ io) {       \
            const int stride = gridDim.x * blockDim.x;                                      \
            const int lane = threadIdx.x % WARP;                                            \
            for (int env = blockIdx.x * blockDim.x + first_env(); env - lane < io->num_envs; \
                 env += stride)                                                             \
                run<operation>(*io, env);                                                   \
        }
  #else
    #define ZOO_ENTRY(name, operation)                                                 \
        extern "C" __global__ void                                                      \
        name(const Io* __restrict__ io) { \
            ZOO_MEET(io);                                                               \
            const int teams = gridDim.x * ZOO_BLOCK_TEAMS / ZOO_TEAM_BLOCKS;            \
            for (int env = first_env(); env < io->num_envs; env += teams)               \
                run<operation>(*io, env);                                               \
        }
  #endif
#elif defined(ZOO_EMULATE)
  #define ZOO_ENTRY(name, operation)                                              \
      extern "C" void name(const Io* io, int begin, int end) {                    \
          run_blocks([=] {                                                        \
              const int stride = ZOO_LANE ? block_threads() : ZOO_BLOCK_TEAMS;    \
              for (int env = begin + first_env(); env < end; env += stride)       \
                  run<operation>(*io, env);                                       \
          });                                                                     \
      }
#elif defined(ZOO_REVERSE)
  #define ZOO_ENTRY(name, operation)                                                        \
      extern "C" void name(const Io* io, int begin, int end) {                              \
          for (int env = end - 1; env >= begin; --env) run<operation>(*io, env);            \
      }
#else
  #if ZOO_LANE
    #include "zoo/tile.cuh"
  #endif

  // Runs environment `env`, or what of its tile lies before `end`. Returns which one is next.
  template <Operation operation>
  ZOO_FN int run_some(const Io& io, int env, int end) {
  #if ZOO_LANE
      if (operation == STEP) return step_tile(io, env, end);
  #endif
      (void)end;
      run<operation>(io, env);
      return env + 1;
  }

  #define ZOO_ENTRY(name, operation)                                                        \
      extern "C" void name(const Io* shared, int begin, int end) {                          \
          const Io io = *shared; /* one that no other pointer leads to */                   \
          for (int env = begin; env < end;) env = run_some<operation>(io, env, end);        \
      }
#endif

ZOO_ENTRY(zoo_reset, RESET)
ZOO_ENTRY(zoo_step, STEP)
ZOO_ENTRY(zoo_observe, OBSERVE)

#if !ZOO_GPU
extern "C" int zoo_sizeof_io() { return (int)sizeof(Io); }
#endif
