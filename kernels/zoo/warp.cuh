// zoo/warp.cuh: the lane shape on a GPU. A warp writes its environments' observations together.
//
// A thread's rows lie as far apart as its environment's neighbours are, so that storing each where
// it belongs would touch a piece of memory of its own for each number. Instead every thread
// leaves its row in shared memory, and the warp copies all 32 out, neighbouring threads
// neighbouring numbers.
#pragma once

constexpr int WARP = 32;
// Odd, so that the 32 threads meet 32 different banks wherever they are in their rows.
constexpr int ROW_PITCH = MAX_OBS_SIZE | 1;
constexpr int STAGE_FLOATS = LANE_THREADS * ROW_PITCH;
// Whether a thread without an environment is needed to write its neighbours' observations.
constexpr bool NEIGHBOURS_HELP = STAGE_FLOATS * sizeof(float) <= 48 * 1024;

// This thread's share of copying the rows whose bit is set in `present` to where the first of them
// belongs; the next one belongs `stride` numbers further.
ZOO_FN void copy_rows(const float* stage, float* to, int size, int stride, u32 present, int lane) {
    int row = lane / size, k = lane % size;
    #pragma unroll 2  // more at once would not fit the registers beside the state
    for (int n = 0; n < size; ++n) {
        if (present >> row & 1u) to[(size_t)row * stride + k] = stage[row * ROW_PITCH + k];
        row += WARP / size;
        k += WARP % size;
        if (k >= size) k -= size, row += 1;
    }
}

// All threads of the warp call this together; those that are `here` have something to show.
ZOO_FN void observe_together(const Env& e, bool here) {
    __shared__ float stage[NEIGHBOURS_HELP ? STAGE_FLOATS : 1];
    const int lane = threadIdx.x % WARP;
    float* const rows = stage + (threadIdx.x - lane) * ROW_PITCH;
    const u32 present = __ballot_sync(~0u, here);
    ZOO_UNROLL for (int i = 0; i < N_AGENTS; ++i) {
        const int g = group_of(i), size = obs_size(g), stride = group_count(g) * size;
        float* const to = e.io.observations[g] + (e.row(i, size) - (size_t)lane * stride);
        if (here) env_observe(e, i, Row{rows + lane * ROW_PITCH});
        __syncwarp();
        copy_rows(rows, to, size, stride, present, lane);
        __syncwarp();
    }
}

ZOO_FN void show(const Env& e, bool here) {
    if (NEIGHBOURS_HELP) return observe_together(e, here);
    if (here) observe(e, e.io.observations);
}
