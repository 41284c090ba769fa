// predator_prey_v0.cu: predators hunt prey on a grid, where food grows for the prey.
//
// Data: predator_prey_v0.py. Agents: predators first. Caught prey lies where it was caught.
//
//   env_reset    first thread  everybody and the food, anywhere on the grid
//   env_step     phase 1       agent i moves, unless caught                (writes pos[i])
//                phase 2       prey k is caught if a predator is there     (writes caught[k])
//                phase 3       food f is eaten by the first free prey there, or grows
//                                                                          (writes wait, eater[f])
//   env_score    agent i       its reward; over once all prey is caught
//   env_observe  agent i       [position | others | caught | food]
// --8<-- [start:start]
#include "zoo/zoo.cuh"

constexpr int FREE = 0, JUST_CAUGHT = 1, CAUGHT = 2;  // values of caught[k]
constexpr int NOBODY = -1;

ZOO_FN bool is_predator(int i) { return i < num_predators; }
ZOO_FN bool same_cell(const int a[2], const int b[2]) { return (a[0] == b[0]) & (a[1] == b[1]); }
// --8<-- [end:start]

// --8<-- [start:reset]
ZOO_FN void place_anywhere(Env& e, int pos[2]) {
    pos[0] = rng_integers(e.rng, e.p.size);
    pos[1] = rng_integers(e.rng, e.p.size);
}

ZOO_FN void env_reset(Env& e) {
    if (!is_first_thread()) return;
    for (int i = 0; i < N_AGENTS; ++i) place_anywhere(e, e.s.pos[i]);
    for (int k = 0; k < num_prey; ++k) e.s.caught[k] = FREE;
    for (int f = 0; f < num_food; ++f) {
        place_anywhere(e, e.s.food[f]);
        e.s.wait[f] = 0;
        e.s.eater[f] = NOBODY;
    }
}
// --8<-- [end:reset]

// --8<-- [start:move]
ZOO_FN void move(Env& e, int i) {
    const int action = e.action(i);  // stay, left, right, down, up
    const int dx = action == 1 ? -1 : action == 2 ? 1 : 0;
    const int dy = action == 3 ? -1 : action == 4 ? 1 : 0;
    e.s.pos[i][0] = zoo_min(zoo_max(e.s.pos[i][0] + dx, 0), e.p.size - 1);
    e.s.pos[i][1] = zoo_min(zoo_max(e.s.pos[i][1] + dy, 0), e.p.size - 1);
}
// --8<-- [end:move]

// --8<-- [start:step]
ZOO_FN void env_step(Env& e) {
    State& s = e.s;
    for_each(i, N_AGENTS) {
        if (is_predator(i) || s.caught[i - num_predators] == FREE) move(e, i);
    }
    sync_env();

    for_each(k, num_prey) {
        bool met = false;
        ZOO_UNROLL for (int p = 0; p < num_predators; ++p)
            met |= same_cell(s.pos[p], s.pos[num_predators + k]);
        s.caught[k] = s.caught[k] != FREE ? CAUGHT : met ? JUST_CAUGHT : FREE;
    }
    sync_env();

    for_each(f, num_food) {
        int first = NOBODY;
        ZOO_UNROLL for (int k = num_prey - 1; k >= 0; --k) {
            const bool here = same_cell(s.pos[num_predators + k], s.food[f]);
            first = here & (s.caught[k] == FREE) ? k : first;
        }
        s.eater[f] = s.wait[f] == 0 ? first : NOBODY;
        s.wait[f] = s.eater[f] != NOBODY ? e.p.regrow : zoo_max(s.wait[f] - 1, 0);
    }
}
// --8<-- [end:step]

// --8<-- [start:score]
ZOO_FN void env_score(Env& e) {
    for_each(i, N_AGENTS) {
        int catches = 0, meals = 0;
        bool over = true;
        ZOO_UNROLL for (int k = 0; k < num_prey; ++k) {
            catches += e.s.caught[k] == JUST_CAUGHT;
            over &= e.s.caught[k] != FREE;
        }
        ZOO_UNROLL for (int f = 0; f < num_food; ++f)
            meals += e.s.eater[f] == i - num_predators;
        if (is_predator(i)) {
            e.reward(i) = real(catches);
        } else {
            e.reward(i) = real(meals - (e.s.caught[i - num_predators] == JUST_CAUGHT));
        }
        e.terminated(i) = over;
    }
}
// --8<-- [end:score]

// --8<-- [start:observe]
ZOO_FN Row write_relative(Row o, const Env& e, const int to[2], const int from[2]) {
    o[0] = (float)(real(to[0] - from[0]) / real(e.p.size));
    o[1] = (float)(real(to[1] - from[1]) / real(e.p.size));
    return o + 2;
}

ZOO_FN void env_observe(const Env& e, int i, Row o) {
    const State& s = e.s;
    const int origin[2] = {0, 0};
    o = write_relative(o, e, s.pos[i], origin);
    ZOO_UNROLL for (int j = 0; j < N_AGENTS; ++j)
        if (j != i) o = write_relative(o, e, s.pos[j], s.pos[i]);
    ZOO_UNROLL for (int k = 0; k < num_prey; ++k) o[k] = s.caught[k] != FREE;
    o = o + num_prey;
    ZOO_UNROLL for (int f = 0; f < num_food; ++f) {
        o = write_relative(o, e, s.food[f], s.pos[i]);
        o[0] = s.wait[f] == 0;
        o = o + 1;
    }
}

#include "zoo/entry.cuh"
// --8<-- [end:observe]
