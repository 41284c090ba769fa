// catalyst_search_v0.cu: one or two atoms look for a cheap way over a table of energies.
//
// Data: gpu_zoo/warpdrive/catalyst_search_v0.py. Follows WarpDrive's CPU rules. The grid is periodic;
// energies are known in a slab of it, and an atom that leaves the slab pays the most.
//
//   env_reset    all at the start
//   env_step     one atom one cell on, unless that leads out of the slab
//   env_score    the energy of where the atoms are now
//   env_observe  places, and how far each atom is from its goal
//
// One agent: who calls a phase alone is its thread.
#include "zoo/zoo.cuh"

constexpr int AXES = 3;
constexpr int PLACES = AXES * num_atoms;
constexpr int HEIGHT = z_slab_upper - z_slab_lower;

ZOO_FN int cells(int k) { return k % AXES == 0 ? nx : k % AXES == 1 ? ny : nz; }

ZOO_FN void env_reset(Env& e) {
    for_each(i, N_AGENTS) {
        ZOO_UNROLL for (int k = 0; k < PLACES; ++k) e.s.position[k] = e.io.tables.start[k];
        e.s.outside = 0;
    }
}

ZOO_FN void env_step(Env& e) {
    State& s = e.s;
    for_each(i, N_AGENTS) {
        const int move = e.action(i, num_atoms - 1);
        const int place = (num_atoms == 2 ? AXES * e.action(i, 0) : 0) + move / 2;
        const int way = move % 2 == 0 ? 1 : -1;
        int moved[PLACES];
        int outside = 0;
        ZOO_UNROLL for (int k = 0; k < PLACES; ++k) {
            const int to = s.position[k] + (k == place ? way : 0);
            moved[k] = to < 0 ? to + cells(k) : to >= cells(k) ? to - cells(k) : to;
            if (k % AXES == 2) outside |= (moved[k] < z_slab_lower) | (moved[k] >= z_slab_upper);
        }
        const bool goes = MAY_LEAVE | !outside;
        ZOO_UNROLL for (int k = 0; k < PLACES; ++k) s.position[k] = goes ? moved[k] : s.position[k];
        s.outside = outside;
    }
}

// Of where the atoms are; some energy of the table where that is outside the slab.
ZOO_FN real energy(const Env& e) {
    int at = 0;
    ZOO_UNROLL for (int k = 0; k < PLACES; ++k) {
        const bool up = k % AXES == 2;
        const int size = up ? HEIGHT : cells(k);
        const int place = e.s.position[k] - (up ? z_slab_lower : 0);
        at = at * size + zoo_min(zoo_max(place, 0), size - 1);
    }
    return e.io.tables.energy[at];
}

ZOO_FN void env_score(Env& e) {
    const Params& p = e.p;
    for_each(i, N_AGENTS) {
        const real gain = p.ienergy - energy(e);
        const real change = e.s.outside ? -p.max_denergy : gain;
        int there = 1;
        ZOO_UNROLL for (int k = 0; k < PLACES; ++k)
            there &= e.s.position[k] == e.io.tables.goal[k];
        const real reward = zoo_min(zoo_max(change / p.max_denergy, p.min_reward), (real)0);
        e.reward(i) = there ? reward + p.terminate_reward : reward;
        e.terminated(i) = there;
    }
}

// Along the straight line, not round the periodic grid.
ZOO_FN real distance(const int* from, const int* to) {
    int sum = 0;
    for (int k = 0; k < AXES; ++k) sum += (from[k] - to[k]) * (from[k] - to[k]);
    return zoo_sqrt((real)sum);
}

ZOO_FN void env_observe(const Env& e, int, Row o) {
    const int* const start = e.io.tables.start;
    const int* const goal = e.io.tables.goal;
    for (int k = 0; k < PLACES; ++k) o[k] = (float)((real)e.s.position[k] / (real)cells(k));
    for (int k = 0; k < PLACES; k += AXES)
        o[PLACES + k / AXES] = (float)(distance(&e.s.position[k], goal + k) /
                                       distance(start + k, goal + k));
}

#include "zoo/entry.cuh"
