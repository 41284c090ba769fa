// learn/adam.cpp: a step of Adam on the CPU, over all parameters as one array.
#include <cmath>
#include <cstdint>

struct Descent {
    float* parameters;
    const float* gradient;
    float* mean;      // Adam's exp_avg
    float* square;    // Adam's exp_avg_sq
    float* steps;     // one number
    int64_t count;
    double rate, max_norm, beta_mean, beta_square, epsilon;
};

// A step of Adam (Kingma and Ba 2015, arXiv:1412.6980), as torch's, along the gradient scaled down
// to max_norm.
extern "C" void adam(const Descent* d) {
    double squares = 0;
    for (int64_t i = 0; i < d->count; i += 256) {  // by parts: float sums keep their digits
        float sum = 0;
        for (int64_t k = i; k < i + 256 && k < d->count; ++k)
            sum += d->gradient[k] * d->gradient[k];
        squares += sum;
    }
    const double norm = std::sqrt(squares) + 1e-6;
    const float scale = norm > d->max_norm ? (float)(d->max_norm / norm) : 1.0f;
    const double steps = *d->steps += 1;
    const float size = (float)(d->rate / (1 - std::pow(d->beta_mean, steps)));
    const float root = (float)(1 / std::sqrt(1 - std::pow(d->beta_square, steps)));
    const float epsilon = (float)d->epsilon;
    const float keep_mean = (float)d->beta_mean, keep_square = (float)d->beta_square;
    for (int64_t i = 0; i < d->count; ++i) {
        const float g = d->gradient[i] * scale;
        d->mean[i] = keep_mean * d->mean[i] + (float)(1 - d->beta_mean) * g;
        d->square[i] = keep_square * d->square[i] + (float)(1 - d->beta_square) * g * g;
        d->parameters[i] -= size * d->mean[i] / (std::sqrt(d->square[i]) * root + epsilon);
    }
}
