// cartpole_v1.cu: pushed left and right, a cart keeps the pole on it upright.
//
// Data: gpu_zoo/classic/cartpole_v1.py. Follows Gymnasium 1.4.0.
//
//   env_reset    first thread  all four numbers uniform around 0
//   env_step     first thread  one step of Euler's method
//   env_score    agent i       over where the pole or the cart has gone too far
//   env_observe  agent i       [x | x_dot | theta | theta_dot]
#include "zoo/zoo.cuh"

constexpr real GRAVITY = real(9.8);
constexpr real POLE_MASS = real(0.1);
constexpr real MASS = POLE_MASS + real(1);  // with the cart
constexpr real LENGTH = real(0.5);          // from the joint to the pole's centre
constexpr real POLE_MOMENT = POLE_MASS * LENGTH;
constexpr real FORCE = real(10);
constexpr real DT = real(0.02);
constexpr real MAX_X = real(2.4);
constexpr real MAX_THETA = real(0.20943951023931953);  // 12 degrees
constexpr real START = real(0.05);

ZOO_FN void env_reset(Env& e) {
    if (!is_first_thread()) return;
    e.s.x = rng_uniform(e.rng, -START, START);
    e.s.x_dot = rng_uniform(e.rng, -START, START);
    e.s.theta = rng_uniform(e.rng, -START, START);
    e.s.theta_dot = rng_uniform(e.rng, -START, START);
}

ZOO_FN void env_step(Env& e) {
    if (!is_first_thread()) return;
    State& s = e.s;
    const real force = e.action(0) == 1 ? FORCE : -FORCE;
    const real sine = real_sin(s.theta), cosine = real_cos(s.theta);
    const real push = (force + POLE_MOMENT * (s.theta_dot * s.theta_dot) * sine) / MASS;
    const real theta_acc = (GRAVITY * sine - cosine * push) /
                           (LENGTH * (real(4) / real(3) - POLE_MASS * (cosine * cosine) / MASS));
    const real x_acc = push - POLE_MOMENT * theta_acc * cosine / MASS;
    s.x = s.x + DT * s.x_dot;
    s.x_dot = s.x_dot + DT * x_acc;
    s.theta = s.theta + DT * s.theta_dot;
    s.theta_dot = s.theta_dot + DT * theta_acc;
}

ZOO_FN void env_score(Env& e) {
    const bool fell = (zoo_abs(e.s.x) > MAX_X) | (zoo_abs(e.s.theta) > MAX_THETA);
    const real lasted = e.p.sutton_barto_reward ? real(0) : real(1);
    const real ended = e.p.sutton_barto_reward ? real(-1) : real(1);
    for_each(i, N_AGENTS) {
        e.reward(i) = fell ? ended : lasted;
        e.terminated(i) = fell;
    }
}

ZOO_FN void env_observe(const Env& e, int, Row o) {
    o[0] = (float)e.s.x;
    o[1] = (float)e.s.x_dot;
    o[2] = (float)e.s.theta;
    o[3] = (float)e.s.theta_dot;
}

#include "zoo/entry.cuh"
