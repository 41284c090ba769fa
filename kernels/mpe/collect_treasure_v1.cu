// collect_treasure_v1.cu: collectors bring treasures to the deposits of their kind.
//
// Data: gpu_zoo/mpe/collect_treasure_v1.py. Follows mpe2 1.1.1. Agents: collectors, then deposits;
// deposit d takes treasures of kind d. A treasure that was picked up is away for the rest of the
// step and comes back elsewhere in the next.
//
//   env_reset    first thread  agents, then each treasure's kind and position
//   env_step     physics       two phases, see mpe/world.cuh
//                first thread  pickups, returns, deliveries, whose order matters
//   env_score    agent i       its reward
//   env_observe  agent i       [pos | vel | what it holds, if a collector | other agents, nearest
//                              first: relative position, velocity, kind taken, kind held |
//                              treasures, nearest first: relative position, kind]
#include "zoo/zoo.cuh"
#include "mpe/world.cuh"

constexpr int NOTHING = -1;
constexpr real TREASURE_BOUND = R(0.95);
constexpr real AWAY = -999;  // where mpe2 puts a treasure that was picked up

ZOO_FN bool is_collector(int i) { return i < num_collectors; }
ZOO_FN int deposit_kind(int i) { return i - num_collectors; }

ZOO_FN void env_reset(Env& e) {
    if (!is_first_thread()) return;
    State& s = e.s;
    // A copy of the generator, as it is now: what returns later is drawn with the numbers that the
    // agents' positions are drawn with here.
    s.returns = e.rng;
    scatter_agents(e);
    ZOO_UNROLL for (int c = 0; c < num_collectors; ++c) s.holding[c] = NOTHING;
    ZOO_UNROLL for (int l = 0; l < N_LANDMARKS; ++l) {
        s.kind[l] = rng_integers(e.rng, num_deposits);
        draw_point(e.rng, TREASURE_BOUND, s.landmark[l]);
        s.alive[l] = 1;
    }
    s.gain = 0;
}

// Gives treasure l to the first empty-handed collector that touches it. Returns whether one did.
ZOO_FN bool pick_up(State& s, int l) {
    bool taken = false;
    ZOO_UNROLL for (int c = 0; c < num_collectors; ++c) {
        if (taken || s.holding[c] != NOTHING || !touches_landmark(s, c, l)) continue;
        taken = true;
        s.holding[c] = s.kind[l];
    }
    if (taken) {
        s.alive[l] = 0;
        s.landmark[l][0] = s.landmark[l][1] = AWAY;
    }
    return taken;
}

ZOO_FN void come_back(State& s, int l) {
    rng_uniform(s.returns, 0, 1);  // mpe2 draws whether it does; it always does
    draw_point(s.returns, TREASURE_BOUND, s.landmark[l]);
    s.kind[l] = rng_integers(s.returns, num_deposits);
    s.alive[l] = 1;
}

ZOO_FN bool deliver(State& s, int c) {
    bool delivered = false;
    ZOO_UNROLL for (int d = num_collectors; d < N_AGENTS; ++d)
        delivered = delivered || (s.holding[c] == deposit_kind(d) && agents_touch(s, c, d));
    if (delivered) s.holding[c] = NOTHING;
    return delivered;
}

ZOO_FN void env_step(Env& e) {
    world_step(e);
    sync_env();
    if (!is_first_thread()) return;
    State& s = e.s;
    int gains = 0;
    ZOO_UNROLL for (int l = 0; l < N_LANDMARKS; ++l) {
        if (s.alive[l]) {
            gains += pick_up(s, l);
        } else {
            come_back(s, l);
        }
    }
    ZOO_UNROLL for (int c = 0; c < num_collectors; ++c) gains += deliver(s, c);
    s.gain = R(5 * gains);
}

constexpr real FAR = 1e30f;  // instead of a distance where there is nothing

ZOO_FN real nearest_treasure(const State& s, int i) {
    real nearest = FAR;
    ZOO_UNROLL for (int l = 0; l < N_LANDMARKS; ++l)
        if (s.alive[l]) nearest = zoo_min(nearest, distance(s.landmark[l], s.pos[i]));
    return nearest;
}

ZOO_FN real matching_deposit(const State& s, int c) {
    real nearest = FAR;
    ZOO_UNROLL for (int d = num_collectors; d < N_AGENTS; ++d)
        if (deposit_kind(d) == s.holding[c]) nearest = distance(s.pos[d], s.pos[c]);
    return nearest;
}

ZOO_FN real nearest_carrier(const State& s, int d) {
    real nearest = FAR;
    ZOO_UNROLL for (int c = 0; c < num_collectors; ++c)
        if (s.holding[c] == deposit_kind(d))
            nearest = zoo_min(nearest, distance(s.pos[c], s.pos[d]));
    return nearest;
}

ZOO_FN real from_centre_of_collectors(const State& s, int d) {
    real x = s.pos[0][0], y = s.pos[0][1];
    ZOO_UNROLL for (int c = 1; c < num_collectors; ++c) {
        x += s.pos[c][0];
        y += s.pos[c][1];
    }
    const real centre[2] = {x / num_collectors, y / num_collectors};
    return distance(centre, s.pos[d]);
}

ZOO_FN real collector_reward(const State& s, int i) {
    int touches = 0;
    ZOO_UNROLL for (int c = 0; c < num_collectors; ++c)
        if (c != i && agents_touch(s, i, c)) touches += 1;
    const real way = s.holding[i] == NOTHING ? nearest_treasure(s, i) : matching_deposit(s, i);
    return R(-5 * touches) - (way < FAR ? R(0.1) * way : 0);
}

ZOO_FN real deposit_reward(const State& s, int i) {
    const real carrier = nearest_carrier(s, i);
    return R(-0.1) * (carrier < FAR ? carrier : from_centre_of_collectors(s, i));
}

ZOO_FN void env_score(Env& e) {
    for_each(i, N_AGENTS)
        e.reward(i) = (is_collector(i) ? collector_reward(e.s, i) : deposit_reward(e.s, i)) +
                      e.s.gain;
}

ZOO_FN int holding(const State& s, int i) { return is_collector(i) ? s.holding[i] : NOTHING; }

// Entry l's place when `far` is sorted, equals in their order.
template <int n>
ZOO_FN int place_of(int l, const real (&far)[n]) {
    int place = 0;
    ZOO_UNROLL for (int m = 0; m < n; ++m)
        place += far[m] < far[l] || (far[m] == far[l] && m < l);
    return place;
}

ZOO_FN Row write_agents_by_distance(Row o, const State& s, int i) {
    constexpr int WIDTH = 4 + 2 * num_deposits;
    real far[N_AGENTS];
    ZOO_UNROLL for (int j = 0; j < N_AGENTS; ++j)
        far[j] = j == i ? FAR : distance(s.pos[j], s.pos[i]);
    ZOO_UNROLL for (int j = 0; j < N_AGENTS; ++j) {
        if (j == i) continue;
        Row slot = o + WIDTH * place_of(j, far);
        slot = write(slot, vec(s.pos[j]) - vec(s.pos[i]));
        slot = write(slot, vec(s.vel[j]));
        slot = write_one_hot(slot, num_deposits, is_collector(j) ? NOTHING : deposit_kind(j));
        write_one_hot(slot, num_deposits, holding(s, j));
    }
    return o + WIDTH * (N_AGENTS - 1);
}

// Those that are away come last, and leave zeros.
ZOO_FN void write_treasures_by_distance(Row o, const State& s, int i) {
    constexpr int WIDTH = 2 + num_deposits;
    real far[N_LANDMARKS];
    ZOO_UNROLL for (int l = 0; l < N_LANDMARKS; ++l)
        far[l] = s.alive[l] ? distance(s.landmark[l], s.pos[i]) : R(1e6);
    ZOO_UNROLL for (int l = 0; l < N_LANDMARKS; ++l) {
        Row slot = o + WIDTH * place_of(l, far);
        slot = write(slot, s.alive[l] ? vec(s.landmark[l]) - vec(s.pos[i]) : Vec{0, 0});
        write_one_hot(slot, num_deposits, s.alive[l] ? s.kind[l] : NOTHING);
    }
}

ZOO_FN void env_observe(const Env& e, int i, Row o) {
    o = write(o, vec(e.s.pos[i]));
    o = write(o, vec(e.s.vel[i]));
    if (is_collector(i)) o = write_one_hot(o, num_deposits, e.s.holding[i]);
    o = write_agents_by_distance(o, e.s, i);
    write_treasures_by_distance(o, e.s, i);
}

#if ZOO_INFO
// mpe2's benchmark data: a collector's treasure (NOTHING for none), or how many carry for a deposit;
// then how many treasures are there.
ZOO_FN void env_info(const Env& e, int i, real* info) {
    int carriers = 0, there = 0;
    ZOO_UNROLL for (int c = 0; c < num_collectors; ++c)
        carriers += e.s.holding[c] == deposit_kind(i);
    ZOO_UNROLL for (int l = 0; l < N_LANDMARKS; ++l) there += e.s.alive[l];
    info[0] = R(is_collector(i) ? holding(e.s, i) : carriers);
    info[1] = R(there);
}
#endif

#include "zoo/entry.cuh"
