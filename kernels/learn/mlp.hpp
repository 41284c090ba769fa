// learn/mlp.hpp: a multilayer perceptron forwards and backwards on the CPU, a tile of rows at a time.
//
// With layers of 64 torch spends more time on starting operations, and on fetching what the one
// before has just written, than on products. Here a tile of rows goes through all layers while it
// lies in the first cache. On a GPU torch's own kernels do well, above all in a CUDA graph; this
// file is for hosts.
//
// Parameters lie one behind the other as torch has them: weights [to][from], biases [to], and so
// on. Everything is float32 and row-major.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16, VECTORS = 4;  // floats a register; registers side by side in a block
#elif defined(__AVX__)
constexpr int LANES = 8, VECTORS = 2;
#else
constexpr int LANES = 4, VECTORS = 4;
#endif
constexpr int ROWS = 6;   // rows of a block: ROWS * VECTORS sums fill most registers
constexpr int TILE = 48;  // rows that go through all layers together

typedef float Vector __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

constexpr int padded(int n) { return (n + LANES - 1) / LANES * LANES; }

struct Strided {
    const float* at;
    ptrdiff_t row, column;
};

// c[m][n] += sum over k of a[m][k] b[k][n] for M rows and N vectors of columns, in registers.
template <int M, int N>
inline void block(Strided a, const float* b, int b_row, float* c, int c_row, int count) {
    Vector sum[M][N];
    for (int m = 0; m < M; ++m)
        for (int n = 0; n < N; ++n) sum[m][n] = *(const Vector*)(c + m * c_row + n * LANES);
    for (int k = 0; k < count; ++k) {
        Vector row[N];
        for (int n = 0; n < N; ++n) row[n] = *(const Vector*)(b + k * b_row + n * LANES);
        for (int m = 0; m < M; ++m) {
            const float factor = a.at[m * a.row + k * a.column];
            for (int n = 0; n < N; ++n) sum[m][n] += factor * row[n];
        }
    }
    for (int m = 0; m < M; ++m)
        for (int n = 0; n < N; ++n) *(Vector*)(c + m * c_row + n * LANES) = sum[m][n];
}

template <int M, int N>
inline void columns(Strided a, const float* b, int b_row, float* c, int c_row, int count) {
    for (int m = 0; m + ROWS <= M; m += ROWS)
        block<ROWS, N>({a.at + m * a.row, a.row, a.column}, b, b_row, c + m * c_row, c_row, count);
    constexpr int rest = M % ROWS, done = M - rest;
    if constexpr (rest > 0)
        block<rest, N>({a.at + done * a.row, a.row, a.column}, b, b_row, c + done * c_row, c_row,
                       count);
}

// The same for M rows and WIDTH columns, a multiple of LANES.
template <int M, int WIDTH>
inline void multiply(Strided a, const float* b, int b_row, float* c, int c_row, int count) {
    constexpr int step = VECTORS * LANES, rest = WIDTH % step / LANES, done = WIDTH - rest * LANES;
    for (int n = 0; n < done; n += step) columns<M, VECTORS>(a, b + n, b_row, c + n, c_row, count);
    if constexpr (rest > 0) columns<M, rest>(a, b + done, b_row, c + done, c_row, count);
}

// tanh as a quotient of polynomials, the one of Eigen: within 4e-7 of it everywhere.
inline float tanh_of(float x) {
    x = x > 7.90531110763549805f ? 7.90531110763549805f : x;
    x = x < -7.90531110763549805f ? -7.90531110763549805f : x;
    const float s = x * x;
    float p = -2.76076847742355e-16f;
    p = p * s + 2.00018790482477e-13f;
    p = p * s + -8.60467152213735e-11f;
    p = p * s + 5.12229709037114e-08f;
    p = p * s + 1.48572235717979e-05f;
    p = p * s + 6.37261928875436e-04f;
    p = p * s + 4.89352455891786e-03f;
    float q = 1.19825839466702e-06f;
    q = q * s + 1.18534705686654e-04f;
    q = q * s + 2.26843463243900e-03f;
    q = q * s + 4.89352518554385e-03f;
    return x * p / q;
}

// Numbers of a tile at one place of the network.
template <int WIDEST>
struct alignas(64) Plane {
    float at[TILE][WIDEST];
};

// A network with layers of these widths, inputs and outputs among them. RELU: the activation
// between layers is max(0, x), else it is tanh.
template <bool RELU, int... SIZES>
struct Mlp {
    static constexpr int widths[] = {SIZES...};
    static constexpr int LAYERS = sizeof...(SIZES) - 1;
    static constexpr int INPUTS = widths[0], OUTPUTS = widths[LAYERS];

    static constexpr int widest() {
        int result = 0;
        for (int width : widths) result = width > result ? width : result;
        return padded(result);
    }
    static constexpr int WIDEST = widest();

    // Where layer l's weights begin among all parameters.
    static constexpr int start_of(int l) {
        int at = 0;
        for (int i = 0; i < l; ++i) at += widths[i + 1] * (widths[i] + 1);
        return at;
    }
    // Where hidden layer l's outputs begin in a row of what is kept for the way back.
    static constexpr int kept_at(int l) {
        int at = 0;
        for (int i = 1; i < l; ++i) at += widths[i];
        return at;
    }
    static constexpr int parameters() { return start_of(LAYERS); }
    static constexpr int kept() { return kept_at(LAYERS); }

    // A tile's numbers: what each layer is given, the last one's outputs, and gradients of two
    // neighbouring places. Beyond a width stand zeros.
    Plane<WIDEST> value[LAYERS + 1];
    Plane<WIDEST> gradient[2];
    // Weights with rows filled up with zeros to whole vectors: [from][to], and [to][from].
    alignas(64) float turned[LAYERS][WIDEST][WIDEST];
    alignas(64) float plain[LAYERS][WIDEST][WIDEST];
    alignas(64) float bias[LAYERS][WIDEST];
    // Sums of gradients, laid out like `plain` and `bias`.
    alignas(64) float weight_sums[LAYERS][WIDEST][WIDEST];
    alignas(64) float bias_sums[LAYERS][WIDEST];

    float (*inputs())[WIDEST] { return value[0].at; }
    float (*outputs())[WIDEST] { return value[LAYERS].at; }
    // Where to put the gradients of the outputs, zeros beyond their number.
    float (*output_gradients())[WIDEST] { return gradient[(LAYERS - 1) % 2].at; }
    float (*input_gradients())[WIDEST] { return gradient[1].at; }

    template <int L = 0>
    void read(const float* from_torch) {
        constexpr int from = widths[L], to = widths[L + 1];
        const float* weight = from_torch + start_of(L);
        for (int j = 0; j < to; ++j)
            for (int k = 0; k < from; ++k)
                turned[L][k][j] = plain[L][j][k] = weight[j * from + k];
        std::memcpy(bias[L], weight + from * to, to * sizeof(float));
        if constexpr (L + 1 < LAYERS) read<L + 1>(from_torch);
    }

    static float activate(float x) { return RELU ? (x > 0 ? x : 0) : tanh_of(x); }
    // The activation's slope where it gave y.
    static float slope(float y) { return RELU ? (y > 0 ? 1.0f : 0.0f) : 1 - y * y; }

    // From the inputs to the outputs.
    template <int L = 0>
    void forward() {
        constexpr int from = widths[L], to = padded(widths[L + 1]);
        float(*in)[WIDEST] = value[L].at;
        float(*out)[WIDEST] = value[L + 1].at;
        for (int r = 0; r < TILE; ++r) std::memcpy(out[r], bias[L], to * sizeof(float));
        multiply<TILE, to>({in[0], WIDEST, 1}, turned[L][0], WIDEST, out[0], WIDEST, from);
        if constexpr (L + 1 < LAYERS) {
            for (int r = 0; r < TILE; ++r)
                for (int j = 0; j < to; ++j) out[r][j] = activate(out[r][j]);
            forward<L + 1>();
        }
    }

    // From gradients of the outputs to those of the parameters, added up, and of the inputs.
    template <int L = LAYERS - 1>
    void backward(bool to_inputs) {
        constexpr int from = padded(widths[L]), to = widths[L + 1];
        float(*in)[WIDEST] = value[L].at;
        float(*given)[WIDEST] = gradient[L % 2].at;
        multiply<to, from>({given[0], 1, WIDEST}, in[0], WIDEST, weight_sums[L][0], WIDEST, TILE);
        for (int r = 0; r < TILE; ++r)
            for (int j = 0; j < padded(to); ++j) bias_sums[L][j] += given[r][j];
        if (L == 0 && !to_inputs) return;
        float(*found)[WIDEST] = gradient[(L + 1) % 2].at;
        for (int r = 0; r < TILE; ++r) std::memset(found[r], 0, from * sizeof(float));
        multiply<TILE, from>({given[0], WIDEST, 1}, plain[L][0], WIDEST, found[0], WIDEST, to);
        if constexpr (L > 0) {
            for (int r = 0; r < TILE; ++r)
                for (int k = 0; k < from; ++k) found[r][k] *= slope(in[r][k]);
            backward<L - 1>(to_inputs);
        }
    }

    void forget_sums() {
        std::memset(weight_sums, 0, sizeof weight_sums);
        std::memset(bias_sums, 0, sizeof bias_sums);
    }

    // The sums, laid out as torch has parameters.
    template <int L = 0>
    void write_sums(float* into) const {
        constexpr int from = widths[L], to = widths[L + 1];
        float* weight = into + start_of(L);
        for (int j = 0; j < to; ++j)
            std::memcpy(weight + j * from, weight_sums[L][j], from * sizeof(float));
        std::memcpy(weight + from * to, bias_sums[L], to * sizeof(float));
        if constexpr (L + 1 < LAYERS) write_sums<L + 1>(into);
    }

    // What the way back needs of the way forth, a row for each of the tile's first `count`.
    template <int L = 1>
    void keep(float* kept_rows, int count) const {
        if constexpr (L < LAYERS) {
            for (int r = 0; r < count; ++r)
                std::memcpy(kept_rows + (ptrdiff_t)r * kept() + kept_at(L), value[L].at[r],
                            widths[L] * sizeof(float));
            keep<L + 1>(kept_rows, count);
        }
    }
    template <int L = 1>
    void remember(const float* kept_rows, int count) {
        if constexpr (L < LAYERS) {
            for (int r = 0; r < count; ++r)
                std::memcpy(value[L].at[r], kept_rows + (ptrdiff_t)r * kept() + kept_at(L),
                            widths[L] * sizeof(float));
            remember<L + 1>(kept_rows, count);
        }
    }
};

}  // namespace
