// my_env_v0.cu: walkers on a line gather at one of its cells.
//
// Data: my_env_v0.py, which declares the state e.s, the parameters (e.p.length; N, which is compiled
// in) and the sizes. What a kernel file may do: docs/kernels.md of gpu_zoo.
//
//   env_reset    first thread  the target, then the walkers, anywhere on the line
//   env_step     walker i      moves                             (writes pos[i])
//   env_score    walker i      minus the mean distance of all    (reads all of pos)
//   env_observe  walker i      [target | other walkers], relative
#include "zoo/zoo.cuh"

constexpr int LEFT = 1, RIGHT = 2;

// Only the first thread may draw random numbers: their order is part of the rules.
ZOO_FN void env_reset(Env& e) {
    if (!is_first_thread()) return;
    e.s.target = rng_integers(e.rng, e.p.length);
    for (int i = 0; i < N; ++i) e.s.pos[i] = rng_integers(e.rng, e.p.length);
}

// Inside for_each, iteration i writes only what walker i owns. Threads may share the loop.
ZOO_FN void env_step(Env& e) {
    for_each(i, N) {
        const int action = e.action(i);
        const int move = action == LEFT ? -1 : action == RIGHT ? 1 : 0;
        e.s.pos[i] = zoo_min(zoo_max(e.s.pos[i] + move, 0), e.p.length - 1);
    }
}

// A step has ended before env_score begins, so all may read what each has written there. Everyone
// adds up for himself: nobody adds to a number that others add to.
ZOO_FN void env_score(Env& e) {
    for_each(i, N) {
        int distance = 0;
        ZOO_UNROLL for (int j = 0; j < N; ++j) distance += zoo_abs(e.s.pos[j] - e.s.target);
        e.reward(i) = -real(distance) / real(N * e.p.length);
        e.terminated(i) = distance == 0;
    }
}

// Called for each agent; writes as many numbers as the spec's slices say.
ZOO_FN void env_observe(const Env& e, int i, Row o) {
    const real scale = real(e.p.length);
    o[0] = (float)(real(e.s.target - e.s.pos[i]) / scale);
    int k = 1;
    ZOO_UNROLL for (int j = 0; j < N; ++j)
        if (j != i) o[k++] = (float)(real(e.s.pos[j] - e.s.pos[i]) / scale);
}

#include "zoo/entry.cuh"
