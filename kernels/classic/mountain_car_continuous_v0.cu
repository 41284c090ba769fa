// mountain_car_continuous_v0.cu: as mountain_car_v0, with a throttle that costs.
//
// Data: gpu_zoo/classic/mountain_car_continuous_v0.py. Follows Gymnasium 1.4.0.
//
//   env_reset    first thread  somewhere near the valley's bottom, at rest
//   env_step     first thread  one step; the wall on the left stops the car
//   env_score    agent i       100 on top and fast enough, minus the throttle's price
//   env_observe  agent i       [position | velocity]
//
// Gymnasium keeps the state as float32, but for the one that an episode starts with: so an episode's
// first step is computed in float64 and the others in float32.
#include "zoo/zoo.cuh"

constexpr double MIN_POSITION = -1.2, MAX_POSITION = 0.6, GOAL = 0.45;
constexpr double MAX_SPEED = 0.07;
constexpr real POWER = real(0.0015);
constexpr real GRAVITY = real(0.0025);

ZOO_FN void env_reset(Env& e) {
    if (!is_first_thread()) return;
    e.s.position = rng_uniform(e.rng, real(-0.6), real(-0.4));
    e.s.velocity = 0;
    e.s.fresh = 1;
}

// What a step adds to the velocity. A throttle at its limit is a Python float in Gymnasium, any
// other a float32, and so is then the sum.
template <class T> ZOO_FN T acceleration(float throttle, T position) {
    const real pull = GRAVITY * real_cos(real(3 * position));
    const real limit = throttle < 0 ? real(-1) : real(1);
    const bool limited = (throttle < -1) | (throttle > 1);
    return limited ? T(limit * POWER - pull) : T(throttle * (float)POWER - (float)pull);
}

template <class T> ZOO_FN void advance(State& s, float throttle) {
    const T least = T(MIN_POSITION), most = T(MAX_POSITION), fastest = T(MAX_SPEED);
    const T free = T(s.velocity) + acceleration<T>(throttle, T(s.position));
    const T velocity = zoo_min(zoo_max(free, -fastest), fastest);
    const T position = zoo_min(zoo_max(T(s.position) + velocity, least), most);
    const bool hits_wall = (position == least) & (velocity < 0);
    s.position = zoo_single(position);
    s.velocity = hits_wall ? T(0) : zoo_single(velocity);
}

ZOO_FN void env_step(Env& e) {
    if (!is_first_thread()) return;
#if ZOO_REFERENCE
    if (e.s.fresh) advance<double>(e.s, e.control(0, 0));
    else
#endif
    advance<float>(e.s, e.control(0, 0));
    e.s.fresh = 0;
}

ZOO_FN void env_score(Env& e) {
    const bool on_top = (float)e.s.position >= (float)GOAL;
    const bool there = on_top & ((float)e.s.velocity >= (float)e.p.goal_velocity);
    for_each(i, N_AGENTS) {
        const real throttle = e.control(i, 0);
        e.reward(i) = (there ? real(100) : real(0)) - throttle * throttle * real(0.1);
        e.terminated(i) = there;
    }
}

ZOO_FN void env_observe(const Env& e, int, Row o) {
    o[0] = (float)e.s.position;
    o[1] = (float)e.s.velocity;
}

#include "zoo/entry.cuh"
