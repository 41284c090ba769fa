// mpe/world.cuh: the physics of the multi-agent particle environments.
//
// Point masses in the plane, one explicit Euler step, soft contacts between all bodies that
// collide; landmarks never move. Source: mpe2 1.1.1, _mpe_utils/core.py. In reference numerics
// each operation is done in mpe2's order, so that the results are the same numbers.
//
// The spec's World (gpu_zoo/mpe/world.py) generates the state that is used here,
//   pos[N_AGENTS][2], vel[N_AGENTS][2], landmark[N_LANDMARKS][2], utterance[N_SPEAKERS][DIM_C]
// the scratch force[N_AGENTS][2], and what is constant about a body:
//   agent_size(i), agent_accel(i), agent_max_speed(i), agent_mass(i), agent_movable(i),
//   agent_collides(i), landmark_size(l), landmark_collides(l)
// Agents that speak come first.
#pragma once

#define R(x) ((real)(x))
constexpr int MOVES = 5;  // none, left, right, down, up
constexpr int COLORS = 3;  // red, green, blue
constexpr real NO_LIMIT = -1;
constexpr int WORDS = N_SPEAKERS > 0 ? DIM_C : 0;  // length of an utterance in the state
constexpr int ALL = -1;  // what a limit of observed neighbours is compiled to where there is none
constexpr real DT = R(0.1);
constexpr real DAMPING = R(0.25);
constexpr real CONTACT_FORCE = R(1e2);
constexpr real CONTACT_MARGIN = R(1e-3);
// Beyond this gap between two bodies the contact force counts as 0. In reference numerics it is 0
// there; in fast ones it is below 1e-35, and numbers much smaller would be slow.
constexpr real CONTACT_REACH = ZOO_REFERENCE ? R(0.75) : R(0.08);

struct Vec {
    real x, y;
    ZOO_METHOD ~Vec() {}  // or clang makes one value of both and cannot vectorise what uses it
};

ZOO_FN Vec vec(const real* p) { return Vec{p[0], p[1]}; }
ZOO_FN Vec operator+(Vec a, Vec b) { return Vec{a.x + b.x, a.y + b.y}; }
ZOO_FN Vec operator-(Vec a, Vec b) { return Vec{a.x - b.x, a.y - b.y}; }
ZOO_FN real squared(Vec v) { return v.x * v.x + v.y * v.y; }
ZOO_FN real distance(const real* p, const real* q) { return zoo_sqrt(squared(vec(p) - vec(q))); }

// Where landmark `goal` lies. Its number is only known at run time, and choosing among all keeps
// the positions in registers, which an index would not.
ZOO_FN Vec goal_position(const State& s, int goal) {
    Vec found = vec(s.landmark[0]);
    ZOO_UNROLL for (int l = 1; l < N_LANDMARKS; ++l) {
        if (l == goal) found = vec(s.landmark[l]);
    }
    return found;
}

// How far agent i is from landmark `goal`.
ZOO_FN real goal_distance(const State& s, int i, int goal) {
    return zoo_sqrt(squared(vec(s.pos[i]) - goal_position(s, goal)));
}

// Reset -------------------------------------------------------------------------------------------

ZOO_FN void draw_point(Rng& rng, real bound, real* p) {
    p[0] = rng_uniform(rng, -bound, bound);
    p[1] = rng_uniform(rng, -bound, bound);
}

// Agents silent and at rest somewhere in the square. Drawn by the first thread, in mpe2's order.
ZOO_FN void scatter_agents(Env& e) {
    State& s = e.s;
    ZOO_UNROLL for (int i = 0; i < N_AGENTS; ++i) {
        draw_point(e.rng, 1, s.pos[i]);
        s.vel[i][0] = s.vel[i][1] = 0;
    }
    ZOO_UNROLL for (int i = 0; i < N_SPEAKERS; ++i)
        ZOO_UNROLL for (int k = 0; k < DIM_C; ++k) s.utterance[i][k] = 0;
}

// Landmarks `begin` to `end` within `bound` of the centre, likewise.
ZOO_FN void scatter_landmarks(Env& e, real bound, int begin = 0, int end = N_LANDMARKS) {
    ZOO_UNROLL for (int l = begin; l < end; ++l) draw_point(e.rng, bound, e.s.landmark[l]);
}

// Step --------------------------------------------------------------------------------------------

// Force of agent i's own motor at `pace`, a factor on its acceleration.
ZOO_FN Vec motor(const Env& e, int i, real pace) {
    const real accel = agent_accel(i) * pace;
    if (continuous_actions) {
        // The differences are float32, as mpe2 gets them from float32 actions.
        return Vec{R(e.control(i, 2) - e.control(i, 1)) * accel,
                   R(e.control(i, 4) - e.control(i, 3)) * accel};
    }
    const int move = e.action(i) % MOVES;
    return Vec{R((move == 2) - (move == 1)) * accel, R((move == 4) - (move == 3)) * accel};
}

// The push that a body at p gets from one at q, which gets the opposite one.
ZOO_FN Vec contact(const real* p, const real* q, real dist_min) {
    const Vec d = vec(p) - vec(q);
    const real reach = dist_min + CONTACT_REACH;
    if (squared(d) > reach * reach) return Vec{0, 0};
    const real dist = zoo_sqrt(squared(d));
    // A lane beyond the reach may come here beside others, and should not slow them down.
    const real gap = zoo_min(dist - dist_min, CONTACT_REACH);
    const real penetration = real_logaddexp0(-gap / CONTACT_MARGIN) * CONTACT_MARGIN;
    return Vec{CONTACT_FORCE * d.x / dist * penetration, CONTACT_FORCE * d.y / dist * penetration};
}

// Adds to `force` what agent i gets from all bodies it touches.
ZOO_FN void add_contacts(Vec& force, const State& s, int i) {
    if (!agent_collides(i)) return;
    // Of two agents the first comes first, as in mpe2: one computation serves them both.
    ZOO_UNROLL for (int j = 0; j < N_AGENTS; ++j) {
        if (j == i || !agent_collides(j)) continue;
        const real dist_min = agent_size(i) + agent_size(j);
        if (i < j) force = force + contact(s.pos[i], s.pos[j], dist_min);
        if (j < i) force = force - contact(s.pos[j], s.pos[i], dist_min);
    }
    ZOO_UNROLL for (int l = 0; l < N_LANDMARKS; ++l)
        if (landmark_collides(l))
            force = force + contact(s.pos[i], s.landmark[l], agent_size(i) + landmark_size(l));
}

ZOO_FN void move(Env& e, int i, real pace) {
    State& s = e.s;
    Vec v = vec(s.vel[i]);
    s.pos[i][0] += v.x * DT;
    s.pos[i][1] += v.y * DT;
    v.x = v.x * (1 - DAMPING) + e.t.force[i][0] / agent_mass(i) * DT;
    v.y = v.y * (1 - DAMPING) + e.t.force[i][1] / agent_mass(i) * DT;
    if (agent_max_speed(i) != NO_LIMIT) {
        const real limit = agent_max_speed(i) * pace;
        const real speed = zoo_sqrt(squared(v));
        if (speed > limit) {
            v.x = v.x / speed * limit;
            v.y = v.y / speed * limit;
        }
    }
    s.vel[i][0] = v.x;
    s.vel[i][1] = v.y;
}

// What agent i says: one word, or DIM_C loudnesses. Actions name the word after the move.
ZOO_FN void speak(Env& e, int i) {
    ZOO_UNROLL for (int k = 0; k < WORDS; ++k) {
        if (continuous_actions) {
            e.s.utterance[i][k] = R(e.control(i, (agent_movable(i) ? MOVES : 0) + k)) + R(0);
        } else {
            const int word = agent_movable(i) ? e.action(i) / MOVES : e.action(i);
            e.s.utterance[i][k] = R(word == k);
        }
    }
}

ZOO_FN real full_pace(const Env&, int) { return 1; }

// One step of the world.
//   phase 1  agent i gathers the forces on it   (writes force[i])
//   phase 2  agent i moves and speaks           (writes pos[i], vel[i], utterance[i])
template <real (*pace)(const Env&, int) = full_pace>
ZOO_FN void world_step(Env& e) {
    for_each(i, N_AGENTS) {
        if (!agent_movable(i)) continue;
        Vec force = motor(e, i, pace(e, i));
        add_contacts(force, e.s, i);
        e.t.force[i][0] = force.x;
        e.t.force[i][1] = force.y;
    }
    sync_env();
    for_each(i, N_AGENTS) {
        if (agent_movable(i)) move(e, i, pace(e, i));
        if (i < N_SPEAKERS) speak(e, i);
    }
}

// Score -------------------------------------------------------------------------------------------

ZOO_FN bool agents_touch(const State& s, int i, int j) {
    const real* first = s.pos[zoo_min(i, j)];  // one computation serves both, as with contacts
    const real* second = s.pos[zoo_max(i, j)];
    return distance(first, second) < agent_size(i) + agent_size(j);
}

ZOO_FN bool touches_landmark(const State& s, int i, int l) {
    return distance(s.pos[i], s.landmark[l]) < agent_size(i) + landmark_size(l);
}

// Cost of leaving the square in one coordinate.
ZOO_FN real bound(real x) {
    const real far = zoo_abs(x);
    if (far < R(0.9)) return 0;
    if (far < R(1.0)) return (far - R(0.9)) * 10;
    return zoo_min(real_exp(2 * far - 2), R(10));
}

// Observe -----------------------------------------------------------------------------------------
// Observations are written left to right; each part returns where the next one starts.

ZOO_FN Row write(Row o, Vec v) {
    o[0] = (float)v.x;
    o[1] = (float)v.y;
    return o + 2;
}

ZOO_FN Row write_zeros(Row o, int n) {
    ZOO_UNROLL for (int k = 0; k < n; ++k) o[k] = 0;
    return o + n;
}

// n numbers, `on` at index k and `off` elsewhere.
ZOO_FN Row write_one_hot(Row o, int n, int k, float on = 1, float off = 0) {
    ZOO_UNROLL for (int j = 0; j < n; ++j) o[j] = j == k ? on : off;
    return o + n;
}

// How many of the n points, `skip` left out, lie nearer to p than points[j] does: j's slot when
// they are sorted by distance. Recomputed rather than sorted, which needs no indexed memory. Of
// distances, not their squares: the root makes equals of some that differ in the last bit.
ZOO_FN int nearness(const real* p, const real (*points)[2], int n, int j, int skip) {
    const real mine = distance(points[j], p);
    int rank = 0;
    ZOO_UNROLL for (int m = 0; m < n; ++m) {
        const real other = distance(points[m], p);
        if (m != skip && (other < mine || (other == mine && m < j))) rank += 1;
    }
    return rank;
}

// Relative positions of the `slots` nearest of n points, nearest first, zeros where there are
// fewer. Point `skip` is left out (the agent itself among agents), -1 for none.
ZOO_FN Row write_nearest(Row o, const real* p, const real (*points)[2], int n, int skip,
                         int slots) {
    write_zeros(o, 2 * slots);
    ZOO_UNROLL for (int j = 0; j < n; ++j) {
        if (j == skip) continue;
        const int slot = nearness(p, points, n, j, skip);
        if (slot < slots) write(o + 2 * slot, vec(points[j]) - vec(p));
    }
    return o + 2 * slots;
}

ZOO_FN Row write_self(Row o, const State& s, int i) {
    o = write(o, vec(s.vel[i]));
    return write(o, vec(s.pos[i]));
}

// Landmarks as agent i sees them: the `slots` nearest, or all of them in order if slots is ALL.
ZOO_FN Row write_landmarks(Row o, const State& s, int i, int slots = ALL) {
    if (slots != ALL) return write_nearest(o, s.pos[i], s.landmark, N_LANDMARKS, -1, slots);
    ZOO_UNROLL for (int l = 0; l < N_LANDMARKS; ++l)
        o = write(o, vec(s.landmark[l]) - vec(s.pos[i]));
    return o;
}

// The other agents, likewise.
ZOO_FN Row write_others(Row o, const State& s, int i, int slots = ALL) {
    if (slots != ALL) return write_nearest(o, s.pos[i], s.pos, N_AGENTS, i, slots);
    ZOO_UNROLL for (int j = 0; j < N_AGENTS; ++j)
        if (j != i) o = write(o, vec(s.pos[j]) - vec(s.pos[i]));
    return o;
}

// What agent i says.
ZOO_FN Row write_utterance(Row o, const State& s, int i) {
    ZOO_UNROLL for (int k = 0; k < DIM_C; ++k) o[k] = (float)s.utterance[i][k];
    return o + DIM_C;
}
