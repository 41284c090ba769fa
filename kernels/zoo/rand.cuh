// zoo/rand.cuh: random numbers, the same on a CPU and a GPU: a fast generator and NumPy's own.
//
//   ZOO_REFERENCE 0   Philox 4x32-10, a function of (seed, episode, draw)
//   ZOO_REFERENCE 1   PCG64 as numpy.random.Generator draws from it, bit for bit
//
// Both give struct Rng, rng_uniform(r, lo, hi), rng_integers(r, n) and rng_skipped(r, n). The host
// fills in an Rng; for PCG64 from numpy.random.PCG64(seed).state, so that no SeedSequence is needed here.
#pragma once
#include "zoo/math.cuh"

// Philox 4x32 in 10 rounds (Salmon and others, "Parallel random numbers: as easy as 1, 2, 3", 2011):
// a block cipher without the secrecy. Different counters under one key give unrelated blocks.
ZOO_FN void philox4x32(const u32 counter[4], const u32 key[2], u32 out[4]) {
  u32 c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
  u32 k0 = key[0], k1 = key[1];
  ZOO_UNROLL for (int round = 0; round < 10; round++) {
    u64 p0 = (u64)0xD2511F53u * c0, p1 = (u64)0xCD9E8D57u * c2;
    c0 = (u32)(p1 >> 32) ^ c1 ^ k0;
    c1 = (u32)p1;
    c2 = (u32)(p0 >> 32) ^ c3 ^ k1;
    c3 = (u32)p0;
    k0 += 0x9E3779B9u;  // 2^32 times the golden ratio's fraction
    k1 += 0xBB67AE85u;  // and sqrt(3)'s
  }
  out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

#if !ZOO_REFERENCE

struct Rng { u64 seed; u32 episode; u32 draw; };

// The generator as words of 64 bits, for storing it.
ZOO_FN u64 rng_word(const Rng& r, int k) { return k == 0 ? r.seed : (u64)r.draw << 32 | r.episode; }
ZOO_FN void rng_set_word(Rng& r, int k, u64 word) {
  if (k == 0) r.seed = word;
  if (k == 1) r.episode = (u32)word, r.draw = (u32)(word >> 32);
}

// One draw is the first word of its own block: the other three are thrown away, which costs a few
// multiplications and saves a buffer. So a draw depends on its number alone, in any order and from
// any thread, and an Rng is 16 bytes. A stream repeats after 2^32 draws.
ZOO_FN u32 rng_bits(Rng& r) {
  u32 counter[4] = {r.draw, r.episode, 0u, 0u}, key[2] = {(u32)r.seed, (u32)(r.seed >> 32)};
  u32 out[4];
  philox4x32(counter, key, out);
  r.draw++;
  return out[0];
}

// lo + (hi - lo) u, u one of the 2^24 multiples of 2^-24 in [0, 1). The sum may round up to hi.
ZOO_FN real rng_uniform(Rng& r, real lo, real hi) {
  real u = (real)(int)(rng_bits(r) >> 8) * (real)5.9604644775390625e-8;
  return lo + (hi - lo) * u;
}

// 0 to n - 1, n >= 1: the high word of bits * n. Of the 2^32 values of bits each answer has either
// floor or ceil(2^32 / n), so its chance is off by less than 2^-32. With n 1 nothing is drawn.
ZOO_FN int rng_integers(Rng& r, int n) {
  if (n == 1) return 0;
  return (int)(((u64)rng_bits(r) * (u32)n) >> 32);
}

// The generator `draws` draws on: each agent's thread can start where its own draws do.
ZOO_FN Rng rng_skipped(Rng r, int draws) {
  r.draw += (u32)draws;
  return r;
}

#else

// The 128 bit state and increment in two halves each, and the half of a 64 bit output that the last
// rng_integers left over: NumPy's has_uint32 and uinteger.
struct Rng { u64 state_hi, state_lo, inc_hi, inc_lo; u32 buffer; u32 has_buffer; };

// The generator as words of 64 bits, for storing it.
ZOO_FN u64 rng_word(const Rng& r, int k) {
  return k == 0   ? r.state_hi
         : k == 1 ? r.state_lo
         : k == 2 ? r.inc_hi
         : k == 3 ? r.inc_lo
                  : (u64)r.has_buffer << 32 | r.buffer;
}
ZOO_FN void rng_set_word(Rng& r, int k, u64 word) {
  if (k == 0) r.state_hi = word;
  if (k == 1) r.state_lo = word;
  if (k == 2) r.inc_hi = word;
  if (k == 3) r.inc_lo = word;
  if (k == 4) r.buffer = (u32)word, r.has_buffer = (u32)(word >> 32);
}

// PCG64: a 128 bit linear congruential step, then of the new state its two halves' xor, rotated by
// its top six bits (XSL-RR).
ZOO_FN u64 rng_next64(Rng& r) {
  typedef unsigned __int128 u128;
  const u128 multiplier = ((u128)2549297995355413924ull << 64) | 4865540595714422341ull;
  u128 state = ((u128)r.state_hi << 64) | r.state_lo, inc = ((u128)r.inc_hi << 64) | r.inc_lo;
  state = state * multiplier + inc;
  r.state_hi = (u64)(state >> 64);
  r.state_lo = (u64)state;
  u64 mixed = r.state_hi ^ r.state_lo;
  u32 turn = (u32)(r.state_hi >> 58);
  return (mixed >> turn) | (mixed << ((64u - turn) & 63u));
}

// 32 bits: the low half of an output, and the next time the high half of the same one. Doubles
// drawn in between leave the waiting half alone.
ZOO_FN u32 rng_bits(Rng& r) {
  if (r.has_buffer) {
    r.has_buffer = 0u;
    return r.buffer;
  }
  u64 next = rng_next64(r);
  r.has_buffer = 1u;
  r.buffer = (u32)(next >> 32);
  return (u32)next;
}

// The generator `draws` uniform draws on, one by one: in these numerics nobody is in a hurry.
ZOO_FN Rng rng_skipped(Rng r, int draws) {
  for (int k = 0; k < draws; ++k) rng_next64(r);
  return r;
}

// Generator.uniform(lo, hi).
ZOO_FN real rng_uniform(Rng& r, real lo, real hi) {
  real u = (real)(long long)(rng_next64(r) >> 11) * 1.1102230246251565e-16;  // 2^-53
  return lo + (hi - lo) * u;
}

// Generator.integers(n), n >= 1: Lemire's method. The high word of bits * n is the answer, drawn
// again where the low word is among the 2^32 mod n that would favour some answers.
ZOO_FN int rng_integers(Rng& r, int n) {
  if (n == 1) return 0;
  u32 count = (u32)n;
  u64 product = (u64)rng_bits(r) * count;
  if ((u32)product < count) {
    u32 unfair = (0u - count) % count;  // 2^32 mod n
    while ((u32)product < unfair) product = (u64)rng_bits(r) * count;
  }
  return (int)(product >> 32);
}

#endif
