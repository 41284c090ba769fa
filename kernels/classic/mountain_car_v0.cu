// mountain_car_v0.cu: a car too weak for the hill on its right swings up in a valley.
//
// Data: gpu_zoo/classic/mountain_car_v0.py. Follows Gymnasium 1.4.0.
//
//   env_reset    first thread  somewhere near the valley's bottom, at rest
//   env_step     first thread  one step; the wall on the left stops the car
//   env_score    agent i       over where the car is on top and fast enough
//   env_observe  agent i       [position | velocity]
#include "zoo/zoo.cuh"

constexpr real MIN_POSITION = real(-1.2), MAX_POSITION = real(0.6), GOAL = real(0.5);
constexpr real MAX_SPEED = real(0.07);
constexpr real FORCE = real(0.001);
constexpr real GRAVITY = real(0.0025);

ZOO_FN void env_reset(Env& e) {
    if (!is_first_thread()) return;
    e.s.position = rng_uniform(e.rng, real(-0.6), real(-0.4));
    e.s.velocity = 0;
}

ZOO_FN void env_step(Env& e) {
    if (!is_first_thread()) return;
    const real slope = real_cos(3 * e.s.position);
    const real free = e.s.velocity + (real(e.action(0) - 1) * FORCE + slope * -GRAVITY);
    const real velocity = zoo_min(zoo_max(free, -MAX_SPEED), MAX_SPEED);
    const real position = e.s.position + velocity;
    e.s.position = zoo_min(zoo_max(position, MIN_POSITION), MAX_POSITION);
    const bool hits_wall = (e.s.position == MIN_POSITION) & (velocity < 0);
    e.s.velocity = hits_wall ? real(0) : velocity;
}

ZOO_FN void env_score(Env& e) {
    const bool there = (e.s.position >= GOAL) & (e.s.velocity >= e.p.goal_velocity);
    for_each(i, N_AGENTS) {
        e.reward(i) = -1;
        e.terminated(i) = there;
    }
}

ZOO_FN void env_observe(const Env& e, int, Row o) {
    o[0] = (float)e.s.position;
    o[1] = (float)e.s.velocity;
}

#include "zoo/entry.cuh"
