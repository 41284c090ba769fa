// acrobot_v1.cu: a motor between two links swings them up, the lower one's end above a line.
//
// Data: gpu_zoo/classic/acrobot_v1.py. Follows Gymnasium 1.4.0.
//
//   env_reset    first thread  hanging down, nearly at rest
//   env_step     first thread  one step of Runge and Kutta's fourth-order method
//   env_score    agent i       over where the end is above the line
//   env_observe  agent i       [cos, sin of theta1 | of theta2 | both angular velocities]
//
// The links' masses, lengths and moments of inertia are 1 and their centres in the middle, so that
// most factors of the equations of motion drop out.
#include "zoo/zoo.cuh"

constexpr real PI = real(3.141592653589793);
constexpr real MAX_SPEED_1 = 4 * PI, MAX_SPEED_2 = 9 * PI;
constexpr real GRAVITY = real(9.8);
constexpr real DT = real(0.2);
constexpr real START = real(0.1);
constexpr int MOST_TURNS = 8;  // more than the links make in a step, from any state

// Two angles and their velocities; or what changes them.
struct Motion {
    real theta1, theta2, speed1, speed2;
};
ZOO_FN Motion operator*(real k, const Motion& m) {
    return Motion{k * m.theta1, k * m.theta2, k * m.speed1, k * m.speed2};
}
ZOO_FN Motion operator+(const Motion& a, const Motion& b) {
    return Motion{a.theta1 + b.theta1, a.theta2 + b.theta2,
                  a.speed1 + b.speed1, a.speed2 + b.speed2};
}

// The equations of motion of Sutton and Barto's book.
ZOO_FN Motion change(const Motion& now, real torque) {
    const real theta1 = now.theta1, theta2 = now.theta2;
    const real speed1 = now.speed1, speed2 = now.speed2;
    const real sine = real_sin(theta2), cosine = real_cos(theta2);
    const real d1 = real(0.25) + (real(1.25) + cosine) + 1 + 1;
    const real d2 = (real(0.25) + real(0.5) * cosine) + 1;
    const real phi2 = real(0.5) * GRAVITY * real_cos(theta1 + theta2 - PI / 2);
    const real phi1 = real(-0.5) * real_square(speed2) * sine - speed2 * speed1 * sine +
                      real(1.5) * GRAVITY * real_cos(theta1 - PI / 2) + phi2;
    const real inertia = real(1.25) - real_square(d2) / d1;
    const real acc2 =
        (torque + d2 / d1 * phi1 - real(0.5) * real_square(speed1) * sine - phi2) / inertia;
    const real acc1 = -(d2 * acc2 + phi1) / d1;
    return Motion{speed1, speed2, acc1, acc2};
}

// The same angle from -PI to PI. Turn by turn, since each one rounds; as selects, which vectorise.
ZOO_FN real wrapped(real angle) {
    ZOO_UNROLL for (int k = 0; k < MOST_TURNS; ++k) angle = angle > PI ? angle - 2 * PI : angle;
    ZOO_UNROLL for (int k = 0; k < MOST_TURNS; ++k) angle = angle < -PI ? angle + 2 * PI : angle;
    return angle;
}

ZOO_FN real bounded(real speed, real limit) { return zoo_min(zoo_max(speed, -limit), limit); }

ZOO_FN real draw(Rng& rng) { return zoo_single(rng_uniform(rng, -START, START)); }

ZOO_FN void env_reset(Env& e) {
    if (!is_first_thread()) return;
    State& s = e.s;
    ZOO_UNROLL for (int k = 0; k < 2; ++k) s.theta[k] = draw(e.rng);
    ZOO_UNROLL for (int k = 0; k < 2; ++k) s.speed[k] = draw(e.rng);
    s.fresh = 1;
}

ZOO_FN void env_step(Env& e) {
    if (!is_first_thread()) return;
    State& s = e.s;
    const real torque = real(e.action(0) - 1);
    const Motion now{s.theta[0], s.theta[1], s.speed[0], s.speed[1]};
    const Motion k1 = change(now, torque);
    const Motion k2 = change(now + DT / 2 * k1, torque);
    const Motion k3 = change(now + DT / 2 * k2, torque);
    const Motion k4 = change(now + DT * k3, torque);
    const Motion next = now + DT / 6 * (k1 + real(2) * k2 + real(2) * k3 + k4);
    s.theta[0] = wrapped(next.theta1);
    s.theta[1] = wrapped(next.theta2);
    s.speed[0] = bounded(next.speed1, MAX_SPEED_1);
    s.speed[1] = bounded(next.speed2, MAX_SPEED_2);
    s.fresh = 0;
}

ZOO_FN void env_score(Env& e) {
    const real height = -real_cos(e.s.theta[0]) - real_cos(e.s.theta[1] + e.s.theta[0]);
    const bool above = height > 1;
    for_each(i, N_AGENTS) {
        e.reward(i) = above ? real(0) : real(-1);
        e.terminated(i) = above;
    }
}

#if ZOO_REFERENCE
// An episode starts with float32 angles in Gymnasium, so that there NumPy's own float32 sine and
// cosine are observed: these polynomials, with each product and sum rounded once.
ZOO_FN float start_sin(float x) {
    const float z = x * x;
    const float p = fmaf(fmaf(fmaf(0x1.7d3bbcp-19f, z, -0x1.a06bbap-13f), z, 0x1.11119ap-07f), z,
                         -0x1.555556p-03f);
    return fmaf(p * z, x, x);
}
ZOO_FN float start_cos(float x) {
    const float z = x * x;
    const float p = fmaf(fmaf(0x1.98e616p-16f, z, -0x1.6c06dcp-10f), z, 0x1.55553cp-05f);
    return fmaf(fmaf(p, z, -0.5f), z, 1.0f);
}
#endif

ZOO_FN void env_observe(const Env& e, int, Row o) {
    ZOO_UNROLL for (int k = 0; k < 2; ++k) {
        const real angle = e.s.theta[k];
        o[2 * k] = (float)real_cos(angle);
        o[2 * k + 1] = (float)real_sin(angle);
#if ZOO_REFERENCE
        if (e.s.fresh) o[2 * k] = start_cos((float)angle), o[2 * k + 1] = start_sin((float)angle);
#endif
        o[4 + k] = (float)e.s.speed[k];
    }
}

#include "zoo/entry.cuh"
