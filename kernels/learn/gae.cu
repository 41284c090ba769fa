// learn/gae.cu: generalised advantage estimates, in one pass backwards over a rollout
// (Schulman et al. 2016, arXiv:1506.02438).
//
// A lane is an agent of an environment; arrays are [steps][lanes], so that neighbouring threads of
// a GPU, or entries of a CPU's vectors, read neighbouring addresses. Before this text stands
// NUMBER, float or double.
#include "zoo/core.cuh"

typedef long long i64;

struct Gae {
    const NUMBER* rewards;
    const NUMBER* values;       // of the observation before a step
    const NUMBER* next_values;  // of what it led to, in the same episode
    const u8* terminated;       // nothing follows
    const u8* ended;            // nothing flows back over this step
    NUMBER* advantages;
    i64 steps, lanes;
    NUMBER gamma, decay;
};

constexpr int LANES = ZOO_GPU ? 1 : 256;  // that one thread carries along

ZOO_FN void estimate(const Gae& g, i64 first, int count) {
    NUMBER following[LANES] = {};
    for (i64 t = g.steps - 1; t >= 0; --t) {
        for (int k = 0; k < count; ++k) {
            const i64 i = t * g.lanes + first + k;
            const NUMBER next = g.terminated[i] ? (NUMBER)0 : g.next_values[i];
            const NUMBER delta = g.rewards[i] + g.gamma * next - g.values[i];
            following[k] = delta + (g.ended[i] ? (NUMBER)0 : g.decay * following[k]);
            g.advantages[i] = following[k];
        }
    }
}

#if ZOO_GPU
extern "C" __global__ void gae(const NUMBER* rewards, const NUMBER* values,
                               const NUMBER* next_values, const u8* terminated, const u8* ended,
                               NUMBER* advantages, i64 steps, i64 lanes, NUMBER gamma,
                               NUMBER decay) {
    const i64 lane = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (lane >= lanes) return;
    estimate({rewards, values, next_values, terminated, ended, advantages, steps, lanes, gamma,
              decay}, lane, 1);
}
#else
extern "C" void gae(const Gae* g, int begin, int end) {
    for (int first = begin; first < end; first += LANES)
        estimate(*g, first, end - first < LANES ? end - first : LANES);
}
#endif
