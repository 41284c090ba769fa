// zoo/zoo.cuh: what a kernel file includes first.
#pragma once
#include "zoo/core.cuh"
#include "zoo/math.cuh"
#include "zoo/rand.cuh"
#include "spec.cuh"  // generated from the environment's EnvSpec by gpu_zoo/prelude.py
#include "zoo/env.cuh"
