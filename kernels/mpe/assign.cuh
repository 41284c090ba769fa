// mpe/assign.cuh: gives each of n agents a target of its own so that the summed distance is least.
//
// With few agents, without a branch: the best way to give the first k agents the targets of a set,
// for every set of k targets, from the best ways for its sets of k - 1. With more, which would be too
// many sets, by shortest augmenting paths, O(n^3). Both find the best; of several, either finds one.
//
// `distance_to(i, j)` is agent i's distance to target j. One thread calls this, the others wait.
#pragma once
#include "zoo/math.cuh"

constexpr int MAX_SETS_OF = 6;  // agents whose sets fit a GPU thread's registers, nearly in double
constexpr real FARTHEST = (real)2;  // a matched distance counts as at most this
constexpr real NEVER = (real)1e30;  // longer than any path

// What is asked of the matched distances.
struct Matched {
    real total;    // their sum
    real clipped;  // their sum, each clipped to FARTHEST; added in NumPy's order
    real largest;
};

ZOO_FN constexpr int bits_in(int set) { return set == 0 ? 0 : (set & 1) + bits_in(set >> 1); }

// Written out by templates: with constant indices the arrays are registers from the start.
template <int n>
struct Sets {
    real d[n][n];      // distances
    real sum[1 << n];  // the least for the first agents, as many as there are targets in the set
    u32 who[1 << n];   // the target of each of them, in three bits an agent

    // Takes what is better: the last of those agents gets target j, or a later one, of the set.
    template <int set, int j>
    ZOO_METHOD void improve() {
        if constexpr (set >> j & 1) {
            constexpr int last = bits_in(set) - 1, rest = set ^ 1 << j;
            const real total = sum[rest] + d[last][j];
            const u32 way = who[rest] | (u32)j << 3 * last;
            const bool better = total < sum[set];
            sum[set] = better ? total : sum[set];
            who[set] = better ? way : who[set];
        }
        if constexpr (j + 1 < n) improve<set, j + 1>();
    }

    template <int set>
    ZOO_METHOD void fill() {
        sum[set] = set == 0 ? (real)0 : NEVER;
        who[set] = 0;
        improve<set, 0>();
        if constexpr (set + 1 < 1 << n) fill<set + 1>();
    }

    // Agent i's distance to its target, if that is j or a later one.
    template <int i, int j>
    ZOO_METHOD real chosen(u32 all) const {
        if constexpr (j + 1 == n) return d[i][j];
        else return (all >> 3 * i & 7u) == (u32)j ? d[i][j] : chosen<i, j + 1>(all);
    }

    // Adds agent i and all later ones.
    template <int i>
    ZOO_METHOD void add(Matched& m) const {
        const real mine = chosen<i, 0>(who[(1 << n) - 1]);
        m.total += mine;
        m.clipped += zoo_min(mine, FARTHEST);
        m.largest = zoo_max(m.largest, mine);
        if constexpr (i + 1 < n) add<i + 1>(m);
    }
};

template <int n, class Distance>
ZOO_FN Matched match_by_sets(Distance distance_to) {
    Sets<n> sets;
    ZOO_UNROLL for (int i = 0; i < n; ++i)
        ZOO_UNROLL for (int j = 0; j < n; ++j) sets.d[i][j] = distance_to(i, j);
    sets.template fill<0>();
    Matched m = {0, 0, 0};
    sets.template add<0>(m);
    return m;
}

// The sum of n numbers in the order in which NumPy adds them: one after the other below 8, then
// eight running sums, then by halves.
template <int n>
ZOO_FN real numpy_sum(const real* a) {
    if constexpr (n > 128) {
        constexpr int half = n / 2 - n / 2 % 8;
        return numpy_sum<half>(a) + numpy_sum<n - half>(a + half);
    } else {
        real sum = 0;
        int k = 0;
        if constexpr (n >= 8) {
            real r[8];
            for (int m = 0; m < 8; ++m) r[m] = a[m];
            for (k = 8; k + 8 <= n; k += 8)
                for (int m = 0; m < 8; ++m) r[m] += a[k + m];
            sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
        }
        for (; k < n; ++k) sum += a[k];
        return sum;
    }
}

// `room` has, n long each: real price, reach, matched; int owner, before; u8 settled.
//
// Targets get prices, so that no agent finds a target cheaper, price added, than its own. Agent by
// agent, the shortest path from it to a free target is sought among the gaps to the cheapest, then
// everybody on the path moves up to the next target on it and the prices follow.
template <int n, class Distance, class Room>
ZOO_FN Matched match_by_paths(Distance distance_to, Room& room) {
    for (int j = 0; j < n; ++j) {
        room.price[j] = 0;
        room.owner[j] = -1;
    }
    for (int newcomer = 0; newcomer < n; ++newcomer) {
        for (int j = 0; j < n; ++j) {
            room.reach[j] = NEVER;
            room.before[j] = -1;
            room.settled[j] = 0;
        }
        int i = newcomer, at = -1;  // agent i asks to move on from target `at`
        real length = 0;            // of the path so far
        do {
            const real base = at < 0 ? 0 : length - (distance_to(i, at) + room.price[at]);
            int next = -1;
            for (int j = 0; j < n; ++j) {
                if (room.settled[j]) continue;
                const real through = base + (distance_to(i, j) + room.price[j]);
                if (through < room.reach[j]) {
                    room.reach[j] = through;
                    room.before[j] = at;
                }
                if (next < 0 || room.reach[j] < room.reach[next]) next = j;
            }
            at = next;
            room.settled[at] = 1;
            length = room.reach[at];
            i = room.owner[at];
        } while (i >= 0);
        for (int j = 0; j < n; ++j)
            if (room.settled[j]) room.price[j] += length - room.reach[j];
        while (at >= 0) {
            const int from = room.before[at];
            room.owner[at] = from < 0 ? newcomer : room.owner[from];
            at = from;
        }
    }
    Matched m = {0, 0, 0};
    for (int j = 0; j < n; ++j) {
        const real d = distance_to(room.owner[j], j);
        m.total += d;
        m.largest = zoo_max(m.largest, d);
        room.matched[room.owner[j]] = zoo_min(d, FARTHEST);
    }
    m.clipped = numpy_sum<n>(room.matched);
    return m;
}

template <int n, class Distance, class Room>
ZOO_FN Matched match(Distance distance_to, Room& room) {
    if constexpr (n <= MAX_SETS_OF) {
        (void)room;
        return match_by_sets<n>(distance_to);
    } else {
        return match_by_paths<n>(distance_to, room);
    }
}
