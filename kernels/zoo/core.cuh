// zoo/core.cuh: the one file that knows which compiler reads the kernel.
//
// A kernel is written once and compiled three ways: by NVRTC for a GPU, by the host C++ compiler
// for the CPU, and by the host compiler with real threads for the race detector (ZOO_EMULATE).
// It has one of two shapes, chosen when it is compiled:
//
//   ZOO_LANE 1   one thread simulates one environment; its agents are a plain loop
//   ZOO_LANE 0   a team of threads simulates one environment; they share its agents
//
// The rule every kernel obeys, whatever its shape: inside one for_each, iteration i writes only
// what i owns and reads only what an earlier phase wrote; sync_env() ends a phase.
#pragma once

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
  #define ZOO_GPU 1
  #define ZOO_FN static __device__ __forceinline__
  #define ZOO_METHOD __device__ __forceinline__
  #if ZOO_LANE
    #define ZOO_UNROLL _Pragma("unroll")
  #else
    #define ZOO_UNROLL  // for many agents it would take compilers minutes
  #endif
#else
  #include <math.h>
  #include <stdint.h>
  #include <string.h>
  #define ZOO_GPU 0
  #define ZOO_FN static inline __attribute__((always_inline, unused))
  #define ZOO_METHOD inline __attribute__((always_inline))
  // A loop over environments is vectorised (zoo/tile.cuh) once there are no others inside it.
  #if !ZOO_LANE || defined(ZOO_ROLLED)
    #define ZOO_UNROLL
  #elif defined(__clang__)
    #define ZOO_UNROLL _Pragma("unroll")
  #else
    #define ZOO_UNROLL _Pragma("GCC unroll 64")
  #endif
#endif

// A bound that is known when the loop is compiled, and small: its variables can be registers.
#if ZOO_GPU
  #define ZOO_UNROLL_FULLY _Pragma("unroll")
#else
  #define ZOO_UNROLL_FULLY
#endif

#include "zoo/team.cuh"

// The loop over agents or entities. ZOO_REVERSE (a test build) runs it backwards: a kernel whose
// iterations lean on each other gives another result there.
#if defined(ZOO_REVERSE)
  #define for_each(i, n) \
    ZOO_UNROLL for (int i = (n) - 1 - zoo_first; i >= 0; i -= zoo_stride)
#else
  #define for_each(i, n) \
    ZOO_UNROLL for (int i = zoo_first; i < (n); i += zoo_stride)
#endif
