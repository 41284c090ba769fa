// zoo/grid.cuh: who is near, among thousands, without looking at all of them.
//
// The square [0, length]^2 is divided into SIDE x SIDE cells, and the agents are sorted by cell. A
// search looks at its own cell and its neighbours, then at rings of cells around them, until
// nothing that lies further out can matter. Answers are exact: as from comparing all pairs.
//
//   build_grid<SIDE>(grid, n, present, x, y)   all threads together; a few phases
//   grid.visit<SIDE>(...)                      all agents of a run of cells
//   nearest<SIDE, K>(grid, i, x, y, after)     the K nearest agents but i itself, nearest first
//
// A cell's agents stand in no particular order, which must not matter to who visits them.
#pragma once
#include "zoo/core.cuh"
#include "zoo/math.cuh"

constexpr int GRID_CHUNKS = 32;  // of cells, which are counted together

// Lies in the kernel's Scratch: the spec gives the arrays' sizes.
struct Grid {
    int* cells;   // SIDE * SIDE + 1: where in the order each cell's agents begin
    int* sums;    // GRID_CHUNKS
    int* order;   // the agents, cell by cell
    real* x;      // their positions, in the same order
    real* y;
    real length;

    template <int SIDE>
    ZOO_METHOD int cell(real at) const {
        // Whoever is outside, or nowhere, belongs to a cell at the border.
        const real c = at * ((real)SIDE / length);
        return c >= SIDE ? SIDE - 1 : c > 0 ? (int)c : 0;
    }

    // Calls see(agent, x, y) for all agents of row `row`, columns `first` to `last`.
    template <int SIDE, class See>
    ZOO_METHOD void visit(int row, int first, int last, See see) const {
        const int end = cells[row * SIDE + last + 1];
        for (int k = cells[row * SIDE + first]; k < end; ++k) see(order[k], x[k], y[k]);
    }
};

// A counting sort. present(i) says whether agent i takes part, x(i) and y(i) where it is.
template <int SIDE, class Present, class X, class Y>
ZOO_FN void build_grid(const Grid& grid, int n, Present present, X x, Y y) {
    constexpr int CELLS = SIDE * SIDE;
    constexpr int CHUNK = (CELLS + GRID_CHUNKS - 1) / GRID_CHUNKS;
    int* const counts = grid.cells;
    for_each(c, CELLS + 1) counts[c] = 0;
    sync_env();
    const auto cell_of = [&](int i) {
        return grid.cell<SIDE>(y(i)) * SIDE + grid.cell<SIDE>(x(i));
    };
    for_each(i, n) if (present(i)) team_add(counts[cell_of(i)], 1);
    sync_env();
    for_each(chunk, GRID_CHUNKS) {
        int sum = 0;
        for (int c = chunk * CHUNK; c < (chunk + 1) * CHUNK && c < CELLS; ++c) sum += counts[c];
        grid.sums[chunk] = sum;
    }
    sync_env();
    for_each(chunk, GRID_CHUNKS) {  // counts become ends
        int sum = 0;
        for (int before = 0; before < chunk; ++before) sum += grid.sums[before];
        for (int c = chunk * CHUNK; c < (chunk + 1) * CHUNK && c < CELLS; ++c)
            counts[c] = sum += counts[c];
        if (chunk == GRID_CHUNKS - 1) counts[CELLS] = sum;
    }
    sync_env();
    for_each(i, n) {  // and, agent by agent, beginnings
        if (!present(i)) continue;
        const int k = team_add(counts[cell_of(i)], -1) - 1;
        grid.order[k] = i;
        grid.x[k] = x(i);
        grid.y[k] = y(i);
    }
    sync_env();
}

// How far an agent is, and who: what decides between two that are equally far is the lower number.
#if ZOO_REFERENCE
  struct Near {
      real distance;
      int agent;
      ZOO_METHOD bool operator<(const Near& other) const {
          return distance < other.distance || (distance == other.distance && agent < other.agent);
      }
  };
  ZOO_FN Near near(real dx, real dy, int agent) {
      return Near{zoo_sqrt(real_square(dx) + real_square(dy)), agent};
  }
  ZOO_FN Near nearer_than_all() { return Near{-1, -1}; }
  ZOO_FN Near nobody() { return Near{1e300, 0x7fffffff}; }
  ZOO_FN int agent_of(const Near& n) { return n.agent; }
  ZOO_FN real distance_of(const Near& n) { return n.distance; }
#else
  // The bits of the squared distance, which has no sign, before the agent's number, which counts
  // from 1 here: 0 is less than any agent's.
  typedef u64 Near;
  ZOO_FN Near near(real dx, real dy, int agent) {
      return (u64)zoo_bits(dx * dx + dy * dy) << 32 | (u32)(agent + 1);
  }
  ZOO_FN Near nearer_than_all() { return 0; }
  ZOO_FN Near nobody() { return ~0ull >> 1; }
  ZOO_FN int agent_of(Near n) { return (int)(u32)n - 1; }
  ZOO_FN real distance_of(Near n) { return zoo_sqrt(zoo_from_bits((u32)(n >> 32))); }
#endif

// The K nearest so far, in order, all in registers: no index is unknown to the compiler.
template <int K>
struct Nearest {
    Near found[K];

    ZOO_METHOD Nearest() {
        ZOO_UNROLL_FULLY for (int k = 0; k < K; ++k) found[k] = nobody();
    }
    ZOO_METHOD void offer(const Near& one) {
        if (!(one < found[K - 1])) return;
        ZOO_UNROLL_FULLY for (int k = K - 1; k > 0; --k) {
            const Near before = found[k - 1];
            found[k] = one < before ? before : one < found[k] ? one : found[k];
        }
        if (one < found[0]) found[0] = one;
    }
};

// The square of cells around (x, y) that a search has seen.
template <int SIDE>
struct Seen {
    int left, right, low, high;

    ZOO_METHOD Seen(const Grid& grid, real x, real y, int ring) {
        const int column = grid.cell<SIDE>(x), row = grid.cell<SIDE>(y);
        left = zoo_max(column - ring, 0), right = zoo_min(column + ring, SIDE - 1);
        low = zoo_max(row - ring, 0), high = zoo_min(row + ring, SIDE - 1);
    }
    ZOO_METHOD bool all() const {
        return left == 0 && low == 0 && right == SIDE - 1 && high == SIDE - 1;
    }
    ZOO_METHOD int agents(const Grid& grid) const {
        int count = 0;
        for (int row = low; row <= high; ++row)
            count += grid.cells[row * SIDE + right + 1] - grid.cells[row * SIDE + left];
        return count;
    }
    // Who is nearer than this has been seen: how far the nearest border with unseen cells is.
    ZOO_METHOD Near certain(const Grid& grid, real x, real y) const {
        if (all()) return nobody();
        const real size = grid.length / (real)SIDE;
        real far = grid.length;
        if (left > 0) far = zoo_min(far, x - (real)left * size);
        if (low > 0) far = zoo_min(far, y - (real)low * size);
        if (right < SIDE - 1) far = zoo_min(far, (real)(right + 1) * size - x);
        if (high < SIDE - 1) far = zoo_min(far, (real)(high + 1) * size - y);
        far -= grid.length * (real)1e-5;  // more than rounding can move a cell's border
        return far > 0 ? near(far, 0, 0) : nearer_than_all();
    }
};

// A CPU searches in its own way, for it has no registers to spare but predicts badly who is nearer:
// it collects who is certain and counts for each how many are nearer.
#if ZOO_GPU || ZOO_REFERENCE || defined(ZOO_ROLLED)
  #define ZOO_RANKS 0
#else
  #define ZOO_RANKS 1
  constexpr int MAX_RANKED = 64;  // counting takes their square
  constexpr int LANES = 4;

  // The K least of `count` keys, in order. A key's rank is how many are less, counted for as many
  // keys at a time as a vector has lanes.
  template <int K>
  ZOO_FN void rank_all(Near (&keys)[MAX_RANKED + LANES], int count, Near (&found)[K]) {
      Near sorted[K + 1];  // the last is for those that are not among them
      for (int k = 0; k < K; ++k) sorted[k] = nobody();
      for (int k = count; k < count + LANES; ++k) keys[k] = nobody();
      for (int k = 0; k < count; k += LANES) {
          long long rank[LANES] = {};
          for (int other = 0; other < count; ++other)
              for (int lane = 0; lane < LANES; ++lane)
                  rank[lane] += (long long)keys[other] < (long long)keys[k + lane];
          for (int lane = 0; lane < LANES; ++lane)
              sorted[zoo_min(rank[lane], (long long)K)] = keys[k + lane];
      }
      for (int k = 0; k < K; ++k) found[k] = sorted[k];
  }

  template <int SIDE, int K>
  ZOO_FN bool nearest_by_rank(const Grid& grid, int i, real x, real y, Near after,
                              const Seen<SIDE>& seen, Near (&found)[K]) {
      Near keys[MAX_RANKED + LANES];
      const Near certain = seen.certain(grid, x, y);
      int count = 0;
      for (int row = seen.low; row <= seen.high; ++row) {
          const int begin = grid.cells[row * SIDE + seen.left];
          const int end = grid.cells[row * SIDE + seen.right + 1];
          for (int k = begin; k < end; ++k) {
              const Near one = near(grid.x[k] - x, grid.y[k] - y, grid.order[k]);
              keys[count] = one;
              count += (one < certain) & (after < one) & (grid.order[k] != i);
              if (count == MAX_RANKED) return false;
          }
      }
      if (count < K && !seen.all()) return false;
      rank_all(keys, count, found);
      return true;
  }
#endif

// The K agents nearest to (x, y), agent i and those up to `after` left out. Where there are fewer,
// the rest is nobody().
template <int SIDE, int K>
ZOO_FN Nearest<K> nearest(const Grid& grid, int i, real x, real y, const Near& after) {
    Nearest<K> best;
    int ring = 1;  // fewer than twice as many would hardly do
    while (ring < SIDE && Seen<SIDE>(grid, x, y, ring).agents(grid) < 2 * K) ring += 1;
#if ZOO_RANKS
    for (; ring <= SIDE; ++ring) {
        const Seen<SIDE> seen(grid, x, y, ring);
        if (nearest_by_rank<SIDE, K>(grid, i, x, y, after, seen, best.found)) return best;
    }
    ring = 1;
#endif
    const auto see = [&](int other, real other_x, real other_y) {
        const Near one = near(other_x - x, other_y - y, other);
        if (other != i && after < one) best.offer(one);
    };
    const int row = grid.cell<SIDE>(y), column = grid.cell<SIDE>(x);
    for (bool first = true;; ++ring, first = false) {
        const Seen<SIDE> seen(grid, x, y, ring);
        for (int r = seen.low; r <= seen.high; ++r) {
            if (first || r == row - ring || r == row + ring) {
                grid.visit<SIDE>(r, seen.left, seen.right, see);
                continue;
            }
            if (column - ring >= 0) grid.visit<SIDE>(r, seen.left, seen.left, see);
            if (column + ring < SIDE) grid.visit<SIDE>(r, seen.right, seen.right, see);
        }
        if (seen.all() || best.found[K - 1] < seen.certain(grid, x, y)) return best;
    }
}
