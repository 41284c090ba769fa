// pendulum_v1.cu: a torque too weak to lift a pendulum swings it up and holds it there.
//
// Data: gpu_zoo/classic/pendulum_v1.py. Follows Gymnasium 1.4.0.
//
//   env_reset    first thread  any angle, theta 0 being upright, and a low speed
//   env_step     first thread  the cost of the state as it was; then its next one
//   env_score    agent i       minus that cost
//   env_observe  agent i       [cos theta | sin theta | theta_dot]
//
// The torque is float32, as is what Gymnasium computes from it alone.
#include "zoo/zoo.cuh"

constexpr real PI = real(3.141592653589793);
constexpr float MAX_TORQUE = 2;
constexpr real MAX_SPEED = 8;
constexpr real DT = real(0.05);

ZOO_FN void env_reset(Env& e) {
    if (!is_first_thread()) return;
    e.s.theta = rng_uniform(e.rng, -PI, PI);
    e.s.theta_dot = rng_uniform(e.rng, real(-1), real(1));
    e.s.cost = 0;
}

// Of a state and the torque on it. The angle counts from upright, the short way.
ZOO_FN real cost_of(const State& s, float torque) {
    const real angle = zoo_mod(s.theta + PI, 2 * PI) - PI;
    return real_square(angle) + real(0.1) * real_square(s.theta_dot) +
           real(0.001f * real_square(torque));
}

ZOO_FN void env_step(Env& e) {
    if (!is_first_thread()) return;
    State& s = e.s;
    const float torque = zoo_min(zoo_max(e.control(0, 0), -MAX_TORQUE), MAX_TORQUE);
    s.cost = cost_of(s, torque);
    const real speed = s.theta_dot + (3 * e.p.g / 2 * real_sin(s.theta) + real(3.0f * torque)) * DT;
    s.theta_dot = zoo_min(zoo_max(speed, -MAX_SPEED), MAX_SPEED);
    s.theta = s.theta + s.theta_dot * DT;
}

ZOO_FN void env_score(Env& e) {
    for_each(i, N_AGENTS) e.reward(i) = -e.s.cost;
}

ZOO_FN void env_observe(const Env& e, int, Row o) {
    o[0] = (float)real_cos(e.s.theta);
    o[1] = (float)real_sin(e.s.theta);
    o[2] = (float)e.s.theta_dot;
}

#include "zoo/entry.cuh"
