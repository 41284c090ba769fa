// learn/mlp.cpp: a multilayer perceptron as an operation for torch's autograd.
//
// Before this text stands NET, the arguments of the template Mlp.
#include "learn/mlp.hpp"

namespace {

using Net = Mlp<NET>;
thread_local Net net_of_thread;  // zeros at first; what lies beyond a width stays so

int rows_left(int begin, int end) { return end - begin < TILE ? end - begin : TILE; }

}  // namespace

struct Call {
    const float* inputs;            // [rows][INPUTS]
    const float* parameters;
    float* outputs;                 // [rows][OUTPUTS]
    float* kept;                    // [rows][kept()], or null: nothing will go backwards
    const float* output_gradients;  // [rows][OUTPUTS]
    float* input_gradients;         // [rows][INPUTS], or null
    float* gradients;               // [parts][parameters()]
    int64_t rows_a_part;
};

extern "C" void mlp_forward(const Call* call, int begin, int end) {
    Net& net = net_of_thread;
    net.read(call->parameters);
    for (ptrdiff_t row = begin; row < end; row += TILE) {
        const int count = rows_left(row, end);
        for (int r = 0; r < count; ++r)
            std::memcpy(net.inputs()[r], call->inputs + (row + r) * Net::INPUTS,
                        Net::INPUTS * sizeof(float));
        net.forward();
        for (int r = 0; r < count; ++r)
            std::memcpy(call->outputs + (row + r) * Net::OUTPUTS, net.outputs()[r],
                        Net::OUTPUTS * sizeof(float));
        if (call->kept != nullptr) net.keep(call->kept + row * Net::kept(), count);
    }
}

extern "C" void mlp_backward(const Call* call, int begin, int end) {
    Net& net = net_of_thread;
    net.read(call->parameters);
    net.forget_sums();
    for (ptrdiff_t row = begin; row < end; row += TILE) {
        const int count = rows_left(row, end);
        net.remember(call->kept + row * Net::kept(), count);
        float(*given)[Net::WIDEST] = net.output_gradients();
        for (int r = 0; r < TILE; ++r) {
            std::memset(given[r], 0, sizeof given[r]);  // of rows that are not there, too
            if (r >= count) continue;
            std::memcpy(given[r], call->output_gradients + (row + r) * Net::OUTPUTS,
                        Net::OUTPUTS * sizeof(float));
            std::memcpy(net.inputs()[r], call->inputs + (row + r) * Net::INPUTS,
                        Net::INPUTS * sizeof(float));
        }
        net.backward(call->input_gradients != nullptr);
        if (call->input_gradients == nullptr) continue;
        for (int r = 0; r < count; ++r)
            std::memcpy(call->input_gradients + (row + r) * Net::INPUTS, net.input_gradients()[r],
                        Net::INPUTS * sizeof(float));
    }
    net.write_sums(call->gradients + begin / call->rows_a_part * Net::parameters());
}
