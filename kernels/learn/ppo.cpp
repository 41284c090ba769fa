// learn/ppo.cpp: what PPO computes most, on the CPU, each in one pass over the rows:
//   ppo_act    draws actions
//   ppo_part   one minibatch: both networks forwards, the loss, and backwards
//
// Distributions and loss are those of baselines/networks.py and ppo.py, term by term; tests hold
// them against each other. There they are some sixty operations of torch, which for networks this
// small cost several times what the products do.
//
// Before this text stand
//   ACTOR, CRITIC  the arguments of the template Mlp
//   COUNTS         for discrete actions: how many each component has, with commas
//   GAUSSIAN       1: a box, whose mean the actor gives; 0: discrete
#include "zoo/math.cuh"
#include "learn/mlp.hpp"

namespace {

using Actor = Mlp<ACTOR>;
using Critic = Mlp<CRITIC>;
constexpr int OBSERVED = Actor::INPUTS, STATE = Critic::INPUTS - OBSERVED;
constexpr int METRICS = 5;
#if GAUSSIAN
constexpr int SPREADS = Actor::OUTPUTS;  // logarithms of standard deviations, before all weights
constexpr int COMPONENTS = Actor::OUTPUTS;
typedef float Action;
#else
constexpr int SPREADS = 0;
constexpr int counts[] = {COUNTS};
constexpr int COMPONENTS = sizeof counts / sizeof counts[0];
typedef int64_t Action;
#endif
constexpr int PARAMETERS = SPREADS + Actor::parameters() + Critic::parameters();
constexpr float LOG_TWO_PI = 1.83787706640934548f;
constexpr float MASKED = -1e30f;
constexpr float LEAST_NOISE = 1.17549435e-38f;  // after 0 any action might be drawn
constexpr float LIMIT = 10;  // of standardised observations, as in baselines/running.py

// What is computed for a tile's rows, one number each.
typedef float Rows[TILE];

}  // namespace

struct Act {
    const float* observations;  // [rows][OBSERVED]
    const float* mean;          // to standardise them with, or null
    const float* scale;
    const float* middle;      // of a box's bounds, added to the actor's outputs
    const float* parameters;
    const float* noise;       // [rows][OUTPUTS]: normal for a box, else exponential
    const bool* masks;        // [rows][OUTPUTS], true where the action is allowed, or null
    Action* actions;          // [rows][COMPONENTS]
    float* log_probs;         // [rows]
};

struct Call {
    const int64_t* chosen;      // [rows]: which of the batch's rows
    int64_t agents;             // samples a row
    const float* observations;  // samples of the whole batch, one after the other, from here
    const Action* actions;
    const float* log_probs;
    const float* values;
    const float* advantages;
    const float* returns;
    const float* weights;    // to here
    const float* states;     // [rows of the batch][STATE], or null
    const bool* masks;       // [samples of the batch][OUTPUTS], true is allowed, or null
    const float* mean;       // of observations, to standardise them with, or null
    const float* scale;
    const float* middle;     // of a box's bounds, added to the actor's outputs
    const float* parameters;
    float* gradient;         // [parts][PARAMETERS]; the sum over parts, then scaled, is in the first
    float* metrics;          // [parts][METRICS + 1], as in METRICS of ppo.py, then the weights' sum
    int64_t rows_a_part;     // samples
    float clip, value_clip, entropy_coef, value_coef;  // value_clip: 0 for none
};

namespace {

// An observation as the networks get it.
void see(const float* observation, const float* mean, const float* scale, float* seen) {
    if (mean == nullptr) {
        std::memcpy(seen, observation, OBSERVED * sizeof(float));
        return;
    }
    for (int k = 0; k < OBSERVED; ++k) {
        const float x = (observation[k] - mean[k]) * scale[k];
        seen[k] = x > LIMIT ? LIMIT : x < -LIMIT ? -LIMIT : x;
    }
}

// One sample's logits, with those of forbidden actions as in baselines/networks.py.
void forbid(const bool* masks, int64_t sample, float* logits) {
    if (masks == nullptr) return;
    for (int k = 0; k < Actor::OUTPUTS; ++k)
        logits[k] = masks[sample * Actor::OUTPUTS + k] ? logits[k] : MASKED;
}

struct Worker {
    Actor actor;
    Critic critic;
    float spread_sums[SPREADS + 1];
    double metrics[METRICS + 1];
};
thread_local Worker worker_of_thread;

// What the policy says of the samples' actions.
struct Judgement {
    Rows log_prob, entropy;
#if GAUSSIAN
    float noise[COMPONENTS][TILE];
    float inverse[COMPONENTS];
#else
    float log_probs[Actor::OUTPUTS][TILE];  // of every action, normalised by component
    float entropies[COMPONENTS][TILE];
#endif
};

#if GAUSSIAN

void draw(const Act& act, const float (*means)[Actor::WIDEST], int row, int count) {
    for (int k = 0; k < COMPONENTS; ++k) {
        const float spread = zoo_exp(act.parameters[k]);
        for (int r = 0; r < count; ++r)
            act.actions[(row + r) * COMPONENTS + k] =
                means[r][k] + act.middle[k] + act.noise[(row + r) * COMPONENTS + k] * spread;
    }
    for (int r = 0; r < count; ++r) {
        float sum = 0;
        for (int k = 0; k < COMPONENTS; ++k) {
            const float noise = act.noise[(row + r) * COMPONENTS + k];
            sum -= 0.5f * (noise * noise + LOG_TWO_PI) + act.parameters[k];
        }
        act.log_probs[row + r] = sum;
    }
}

void judge(const Call& call, const float (*means)[Actor::WIDEST],
           const Action (*actions)[TILE], Judgement& j) {
    for (int r = 0; r < TILE; ++r) j.log_prob[r] = j.entropy[r] = 0;
    for (int k = 0; k < COMPONENTS; ++k) {
        const float log_std = call.parameters[k];
        j.inverse[k] = zoo_exp(-log_std);
        for (int r = 0; r < TILE; ++r) {
            const float noise = (actions[k][r] - (means[r][k] + call.middle[k])) * j.inverse[k];
            j.noise[k][r] = noise;
            j.log_prob[r] -= 0.5f * (noise * noise + LOG_TWO_PI) + log_std;
            j.entropy[r] += log_std + 0.5f * (LOG_TWO_PI + 1);
        }
    }
}

// Gradients of the actor's outputs, given those of log-probabilities and entropies.
void spread_back(const Judgement& j, const Action (*)[TILE], const Rows& log_prob,
                 const Rows& entropy, Worker& w) {
    for (int k = 0; k < COMPONENTS; ++k)
        for (int r = 0; r < TILE; ++r) {
            const float noise = j.noise[k][r];
            w.actor.output_gradients()[r][k] = log_prob[r] * noise * j.inverse[k];
            w.spread_sums[k] += log_prob[r] * (noise * noise - 1) + entropy[r];
        }
}

#else

// Log-probabilities of `count` actions from their logits, those of a component.
void normalise(const float (*logits)[Actor::WIDEST], int first, int count,
               float (*log_probs)[TILE]) {
    Rows most, sum = {};
    for (int r = 0; r < TILE; ++r) most[r] = logits[r][first];
    for (int k = first; k < first + count; ++k)
        for (int r = 0; r < TILE; ++r) most[r] = zoo_max(most[r], logits[r][k]);
    for (int k = first; k < first + count; ++k)
        for (int r = 0; r < TILE; ++r) sum[r] += zoo_exp(logits[r][k] - most[r]);
    for (int r = 0; r < TILE; ++r) sum[r] = most[r] + zoo_log(sum[r]);
    for (int k = first; k < first + count; ++k)
        for (int r = 0; r < TILE; ++r) log_probs[k][r] = logits[r][k] - sum[r];
}

// The action whose log-probability less the logarithm of its noise is the largest.
void draw(const Act& act, const float (*logits)[Actor::WIDEST], int row, int count) {
    float log_probs[Actor::OUTPUTS][TILE], noise[Actor::OUTPUTS][TILE];
    for (int k = 0; k < Actor::OUTPUTS; ++k)
        for (int r = 0; r < TILE; ++r)
            noise[k][r] =
                r < count ? zoo_max(act.noise[(row + r) * Actor::OUTPUTS + k], LEAST_NOISE) : 1.0f;
    Rows total = {};
    for (int c = 0, first = 0; c < COMPONENTS; first += counts[c], ++c) {
        normalise(logits, first, counts[c], log_probs);
        Rows most, found = {};
        int best[TILE] = {};
        for (int r = 0; r < TILE; ++r) most[r] = -INFINITY;
        for (int k = first; k < first + counts[c]; ++k)
            for (int r = 0; r < TILE; ++r) {
                const float key = log_probs[k][r] - zoo_log(noise[k][r]);
                const bool better = key > most[r];
                most[r] = better ? key : most[r];
                best[r] = better ? k - first : best[r];
                found[r] = better ? log_probs[k][r] : found[r];
            }
        for (int r = 0; r < count; ++r) act.actions[(row + r) * COMPONENTS + c] = best[r];
        for (int r = 0; r < TILE; ++r) total[r] += found[r];
    }
    std::memcpy(act.log_probs + row, total, count * sizeof(float));
}

void judge(const Call&, const float (*logits)[Actor::WIDEST], const Action (*actions)[TILE],
           Judgement& j) {
    for (int r = 0; r < TILE; ++r) j.log_prob[r] = j.entropy[r] = 0;
    for (int c = 0, first = 0; c < COMPONENTS; first += counts[c], ++c) {
        normalise(logits, first, counts[c], j.log_probs);
        Rows chosen = {}, entropy = {};
        for (int k = first; k < first + counts[c]; ++k)
            for (int r = 0; r < TILE; ++r) {
                const float log_prob = j.log_probs[k][r];
                entropy[r] -= zoo_exp(log_prob) * log_prob;
                chosen[r] = actions[c][r] == k - first ? log_prob : chosen[r];
            }
        for (int r = 0; r < TILE; ++r) {
            j.entropies[c][r] = entropy[r];
            j.entropy[r] += entropy[r];
            j.log_prob[r] += chosen[r];
        }
    }
}

void spread_back(const Judgement& j, const Action (*actions)[TILE], const Rows& log_prob,
                 const Rows& entropy, Worker& w) {
    for (int c = 0, first = 0; c < COMPONENTS; first += counts[c], ++c)
        for (int k = first; k < first + counts[c]; ++k)
            for (int r = 0; r < TILE; ++r) {
                const float one = j.log_probs[k][r], p = zoo_exp(one);
                const float hit = actions[c][r] == k - first ? 1.0f : 0.0f;
                w.actor.output_gradients()[r][k] =
                    log_prob[r] * (hit - p) - entropy[r] * p * (one + j.entropies[c][r]);
            }
}

#endif


// The loss of a tile's samples and its gradients; `count` of its rows are samples.
void learn_from(const Call& call, int begin, int count, Worker& w) {
    Rows old_log_prob = {}, old_value = {}, advantage = {}, target = {}, weight = {};
    int64_t sample[TILE];
    Action actions[COMPONENTS][TILE] = {};
    for (int r = 0; r < count; ++r) {
        const int64_t row = call.chosen[(begin + r) / call.agents];
        const int64_t i = sample[r] = row * call.agents + (begin + r) % call.agents;
        see(call.observations + i * OBSERVED, call.mean, call.scale, w.actor.inputs()[r]);
        std::memcpy(w.critic.inputs()[r], w.actor.inputs()[r], OBSERVED * sizeof(float));
        if (STATE > 0)
            std::memcpy(w.critic.inputs()[r] + OBSERVED, call.states + row * STATE,
                        STATE * sizeof(float));
        for (int k = 0; k < COMPONENTS; ++k) actions[k][r] = call.actions[i * COMPONENTS + k];
        old_log_prob[r] = call.log_probs[i];
        old_value[r] = call.values[i];
        advantage[r] = call.advantages[i];
        target[r] = call.returns[i];
        weight[r] = call.weights[i];
    }
    w.actor.forward();
    w.critic.forward();
    for (int r = 0; r < count; ++r) forbid(call.masks, sample[r], w.actor.outputs()[r]);
    Judgement j;
    judge(call, w.actor.outputs(), actions, j);

    Rows to_log_prob, to_entropy, to_value, terms[METRICS];
    for (int r = 0; r < TILE; ++r) {
        const float log_ratio = j.log_prob[r] - old_log_prob[r], ratio = zoo_exp(log_ratio);
        const float low = 1 - call.clip, high = 1 + call.clip;
        const float cut = ratio < low ? low : ratio > high ? high : ratio;
        const float free = ratio * advantage[r], held = cut * advantage[r];
        const bool moves = free <= held;  // where they are equal nothing was cut
        terms[0][r] = -(moves ? free : held);
        to_log_prob[r] = moves ? -weight[r] * free : 0.0f;

        const float value = w.critic.outputs()[r][0], error = value - target[r];
        const float limit = call.value_clip, step = value - old_value[r];
        const bool far = step > limit || step < -limit;
        const float held_error = old_value[r] + (step > limit ? limit : -limit) - target[r];
        const bool worse = limit > 0 && far && held_error * held_error > error * error;
        terms[1][r] = worse ? held_error * held_error : error * error;
        to_value[r] = worse ? 0.0f : 2 * call.value_coef * weight[r] * error;

        terms[2][r] = j.entropy[r];
        to_entropy[r] = -call.entropy_coef * weight[r];
        terms[3][r] = ratio - 1 - log_ratio;
        terms[4][r] = zoo_abs(ratio - 1) > call.clip ? 1.0f : 0.0f;
    }
    for (int m = 0; m < METRICS; ++m) {
        float sum = 0;
        for (int r = 0; r < TILE; ++r) sum += terms[m][r] * weight[r];
        w.metrics[m] += sum;
    }
    for (int r = 0; r < TILE; ++r) w.metrics[METRICS] += weight[r];

    std::memset(w.actor.output_gradients(), 0, sizeof(Plane<Actor::WIDEST>));
    std::memset(w.critic.output_gradients(), 0, sizeof(Plane<Critic::WIDEST>));
    spread_back(j, actions, to_log_prob, to_entropy, w);
    for (int r = 0; r < TILE; ++r) w.critic.output_gradients()[r][0] = to_value[r];
    w.actor.backward(false);
    w.critic.backward(false);
}

}  // namespace

// Actions for the observations begin to end.
extern "C" void ppo_act(const Act* act, int begin, int end) {
    Actor& actor = worker_of_thread.actor;
    actor.read(act->parameters + SPREADS);
    for (int row = begin; row < end; row += TILE) {
        const int count = end - row < TILE ? end - row : TILE;
        for (int r = 0; r < count; ++r)
            see(act->observations + (ptrdiff_t)(row + r) * OBSERVED, act->mean, act->scale,
                actor.inputs()[r]);
        actor.forward();
        for (int r = 0; r < count; ++r) forbid(act->masks, row + r, actor.outputs()[r]);
        draw(*act, actor.outputs(), row, count);
    }
}

// Sums over a part of the minibatch, samples begin to end.
extern "C" void ppo_part(const Call* call, int begin, int end) {
    Worker& w = worker_of_thread;
    w.actor.read(call->parameters + SPREADS);
    w.critic.read(call->parameters + SPREADS + Actor::parameters());
    w.actor.forget_sums();
    w.critic.forget_sums();
    std::memset(w.spread_sums, 0, sizeof w.spread_sums);
    std::memset(w.metrics, 0, sizeof w.metrics);
    for (int at = begin; at < end; at += TILE)
        learn_from(*call, at, end - at < TILE ? end - at : TILE, w);
    const int64_t part = begin / call->rows_a_part;
    float* gradient = call->gradient + part * PARAMETERS;
    std::memcpy(gradient, w.spread_sums, SPREADS * sizeof(float));
    w.actor.write_sums(gradient + SPREADS);
    w.critic.write_sums(gradient + SPREADS + Actor::parameters());
    for (int m = 0; m <= METRICS; ++m) call->metrics[part * (METRICS + 1) + m] = w.metrics[m];
}

// From sums over `parts` to means over the samples that count, in the place of the first part.
extern "C" void ppo_mean(const Call* call, int parts) {
    for (int part = 1; part < parts; ++part) {
        for (int i = 0; i < PARAMETERS; ++i)
            call->gradient[i] += call->gradient[part * PARAMETERS + i];
        for (int m = 0; m <= METRICS; ++m)
            call->metrics[m] += call->metrics[part * (METRICS + 1) + m];
    }
    const float weight = call->metrics[METRICS], share = 1 / (weight > 1 ? weight : 1.0f);
    for (int i = 0; i < PARAMETERS; ++i) call->gradient[i] *= share;
    for (int m = 0; m < METRICS; ++m) call->metrics[m] *= share;
}
