// tag_continuous_v0.cu: taggers chase runners over a square; all steer like small cars.
//
// Data: gpu_zoo/warpdrive/tag_continuous_v0.py. Follows WarpDrive's CPU rules. Agents: taggers first.
//
//   env_reset    agent i       place and heading drawn, standing still
//   env_step     agent i       turn, accelerate, move, stop at the wall
//   env_survey   a few phases  the agents of the game sorted into a grid (zoo/grid.cuh)
//   env_score    phase 1       runner r: who tags it               (writes tagged_by[r]; counts)
//                phase 2       agent i: its reward, whether it is out
//   env_observe  agent i       seven numbers of each other agent, or of the nearest; the time
//
// Observations are of the moment between moving and tagging: who is tagged in a step is still seen
// in the game then, and sees. State::seen holds who that was.
#include "zoo/zoo.cuh"
#include "zoo/grid.cuh"

constexpr real PI = (real)3.141592653589793;
constexpr int FEATURES = 7;
constexpr int NOBODY = -1;
// Neighbours that a thread keeps in registers at a time.
constexpr int AT_ONCE = N_OBSERVED < 16 ? N_OBSERVED : 16;

ZOO_FN bool is_tagger(int i) { return i < num_taggers; }

ZOO_FN Grid grid_of(const Env& e) {
    return Grid{e.t.cells, e.t.sums, e.t.order, e.t.near_x, e.t.near_y, e.p.grid_length};
}

// Three draws an agent, each from its own place in the stream.
ZOO_FN void env_reset(Env& e) {
    for_each(i, N_AGENTS) {
        Rng rng = rng_skipped(e.rng, 3 * i);
        e.s.x[i] = rng_uniform(rng, 0, e.p.grid_length);
        e.s.y[i] = rng_uniform(rng, 0, e.p.grid_length);
        const int quarter = (int)rng_uniform(rng, 0, 4);
        e.s.direction[i] = PI / 2 * (real)(quarter & 3);
        e.s.speed[i] = 0;
        e.s.acceleration[i] = 0;
        e.s.seen[i] = 1;
        e.s.at_wall[i] = 0;
    }
    if (is_first_thread()) e.rng = rng_skipped(e.rng, 3 * N_AGENTS);
}

// What an action adds: nothing, or one of `count` values evenly spaced from `low` to `high`.
struct Levels {
    int count;
    real low, high, step;

    ZOO_METHOD Levels(int count, real low, real high)
        : count(count), low(low), high(high), step((high - low) / (real)(count > 1 ? count - 1 : 1)) {}
    ZOO_METHOD real operator[](int action) const {
        if (action == 0) return 0;
        if (action == count && count > 1) return high;
        return (real)(action - 1) * step + low;
    }
};

ZOO_FN void stand_still(State& s, int i) {
    s.direction[i] = 0;
    s.speed[i] = 0;
    s.acceleration[i] = 0;
    s.at_wall[i] = 0;
    s.seen[i] = 0;
}

ZOO_FN void env_step(Env& e) {
    State& s = e.s;
    const Params& p = e.p;
    const Levels turns(num_turn_levels, p.min_turn, p.max_turn);
    const Levels pushes(num_acceleration_levels, p.min_acceleration, p.max_acceleration);
    for_each(i, N_AGENTS) {
        if (!e.active(i)) {
            stand_still(s, i);
            continue;
        }
        const real limit = p.max_speed * (is_tagger(i) ? p.skill_level_tagger
                                                       : p.skill_level_runner);
        const real direction = zoo_mod(s.direction[i] + turns[e.action(i, 1)], 2 * PI);
        const real wanted = s.acceleration[i] + pushes[e.action(i, 0)];
        const real speed = zoo_min(zoo_max(s.speed[i] + wanted, (real)0), limit);
        const real x = s.x[i] + speed * real_cos(direction);
        const real y = s.y[i] + speed * real_sin(direction);
        const real inside_x = zoo_min(zoo_max(x, (real)0), p.grid_length);
        const real inside_y = zoo_min(zoo_max(y, (real)0), p.grid_length);
        s.direction[i] = direction;
        s.speed[i] = speed;
        s.acceleration[i] = speed > 0 && speed < limit ? wanted : 0;
        s.x[i] = inside_x;
        s.y[i] = inside_y;
        s.at_wall[i] = x != inside_x || y != inside_y;
        s.seen[i] = 1;
    }
}

ZOO_FN void env_survey(Env& e) {
    const State& s = e.s;
    for_each(i, num_taggers) e.t.tags[i] = 0;
    if (is_first_thread()) e.t.left = 0;
    build_grid<GRID_SIDE>(
        grid_of(e), N_AGENTS, [&](int i) { return s.seen[i] != 0; },
        [&](int i) { return s.x[i]; }, [&](int i) { return s.y[i]; });
}

// The nearest tagger, if it is within reach of runner i.
ZOO_FN int tagger_of(const Env& e, const Grid& grid, int i, real reach) {
    const real x = e.s.x[i], y = e.s.y[i];
    const real wide = reach + grid.length * (real)1e-5;
    const int left = grid.cell<GRID_SIDE>(x - wide);
    const int right = grid.cell<GRID_SIDE>(x + wide);
    const int high = grid.cell<GRID_SIDE>(y + wide);
    Near best = nobody();
    for (int row = grid.cell<GRID_SIDE>(y - wide); row <= high; ++row)
        grid.visit<GRID_SIDE>(row, left, right, [&](int other, real other_x, real other_y) {
            if (!is_tagger(other)) return;
            const Near one = near(x - other_x, y - other_y, other);
            if (one < best) best = one;
        });
    return best < nobody() && distance_of(best) < reach ? agent_of(best) : NOBODY;
}

ZOO_FN void env_score(Env& e) {
    const Params& p = e.p;
    const Grid grid = grid_of(e);
    const real reach = p.tagging_distance * p.grid_length;
    for_each(r, num_runners) {
        const int i = num_taggers + r;
        const int tagger = e.active(i) ? tagger_of(e, grid, i, reach) : NOBODY;
        e.t.tagged_by[r] = tagger;
        if (tagger != NOBODY) team_add(e.t.tags[tagger], 1);
        if (e.active(i) && !(tagger != NOBODY && p.runner_exits_game_after_tagged))
            team_add(e.t.left, 1);
    }
    sync_env();

    for_each(i, N_AGENTS) {
        real reward = e.s.at_wall[i] ? p.edge_hit_penalty : 0;
        bool out = e.t.left == 0;
        if (is_tagger(i)) {
            reward += p.step_penalty_for_tagger;
            for (int tag = 0; tag < e.t.tags[i]; ++tag) reward += p.tag_reward_for_tagger;
        } else {
            const bool tagged = e.t.tagged_by[i - num_taggers] != NOBODY;
            reward += p.step_reward_for_runner;
            if (tagged) reward += p.tag_penalty_for_runner;
            out |= tagged && p.runner_exits_game_after_tagged;
            if (!out && e.time >= p.episode_length) reward += p.end_of_game_reward_for_runner;
        }
        e.reward(i) = reward;
        e.terminated(i) = out;
    }
}

// What makes numbers of an observation small.
struct Scale {
    real place, speed, turn;

    ZOO_METHOD explicit Scale(const Params& p)
        : place(p.grid_length * zoo_sqrt((real)2)), speed(p.max_speed + (real)1e-10),
          turn(2 * PI) {}
};

// `to` less `from`, both divided by what is normal for them.
ZOO_FN float difference(real to, real from, real scale) {
#if ZOO_REFERENCE
    return (float)(to / scale - from / scale);
#else
    const real factor = 1 / scale;
    return to * factor - from * factor;
#endif
}

// What agent i sees of another; of itself, zeros.
template <int FEATURE>
ZOO_FN float seen_of(const State& s, const Scale& scale, int i, int other) {
    if constexpr (FEATURE == 0) return difference(s.x[other], s.x[i], scale.place);
    if constexpr (FEATURE == 1) return difference(s.y[other], s.y[i], scale.place);
    if constexpr (FEATURE == 2) return difference(s.speed[other], s.speed[i], scale.speed);
    if constexpr (FEATURE == 3)
        return difference(s.acceleration[other], s.acceleration[i], scale.speed);
    if constexpr (FEATURE == 4)
        return difference(s.direction[other], s.direction[i], scale.turn);
    if constexpr (FEATURE == 5) return (other != i) & is_tagger(other);
    return (other != i) & s.seen[other];
}

// Everybody else, in order. Who is out sees no more than who is what, and who is in.
template <int FEATURE = 0>
ZOO_FN void write_all(const State& s, const Scale& scale, int i, Row o) {
    const bool blind = FEATURE < 5 && !s.seen[i];
    for (int k = 0; k < N_AGENTS - 1; ++k)
        o[FEATURE * N_OBSERVED + k] =
            blind ? 0 : seen_of<FEATURE>(s, scale, i, k < i ? k : k + 1);
    if constexpr (FEATURE + 1 < FEATURES) write_all<FEATURE + 1>(s, scale, i, o);
}

// Agents `others` as numbers `first` and on of each feature.
template <int FEATURE = 0>
ZOO_FN void write_some(const State& s, const Scale& scale, int i, const int (&others)[AT_ONCE],
                       int first, Row o) {
    ZOO_UNROLL_FULLY for (int k = 0; k < AT_ONCE; ++k)
        if (first + k < N_OBSERVED)
            o[FEATURE * N_OBSERVED + first + k] = seen_of<FEATURE>(s, scale, i, others[k]);
    if constexpr (FEATURE + 1 < FEATURES) write_some<FEATURE + 1>(s, scale, i, others, first, o);
}

// The nearest of the agents in the game; where they are fewer, zeros: what an agent sees of itself.
ZOO_FN void write_nearest(const Env& e, const Scale& scale, int i, Row o) {
    const Grid grid = grid_of(e);
    Near last = nearer_than_all();
    for (int first = 0; first < N_OBSERVED; first += AT_ONCE) {
        const Nearest<AT_ONCE> best =
            nearest<GRID_SIDE, AT_ONCE>(grid, i, e.s.x[i], e.s.y[i], last);
        int others[AT_ONCE];
        ZOO_UNROLL_FULLY for (int k = 0; k < AT_ONCE; ++k)
            others[k] = best.found[k] < nobody() ? agent_of(best.found[k]) : i;
        write_some(e.s, scale, i, others, first, o);
        last = best.found[AT_ONCE - 1];
    }
}

ZOO_FN void env_observe(const Env& e, int i, Row o) {
    const Scale scale(e.p);
    const bool sees = e.s.seen[i];
    if (use_full_observation) {
        write_all(e.s, scale, i, o);
    } else if (sees) {
        write_nearest(e, scale, i, o);
    } else {
        for (int k = 0; k < FEATURES * N_OBSERVED; ++k) o[k] = 0;
    }
    o[FEATURES * N_OBSERVED] = sees ? (float)((real)e.time / (real)e.p.episode_length) : 0;
}

#include "zoo/entry.cuh"
