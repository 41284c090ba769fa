"""`gpu-zoo bench`: steps a second of an environment, beside other packages timed in the same run.

A contender takes a number of steps and comes back when they are done. Ours and a peer's are timed
in turns (ours, peer, ours, peer, ...), so that a machine which slows down while we measure slows
both, and a ratio is taken within a turn. What is reported is the median.
"""

from gpu_zoo.bench.race import bench, bench_family, bench_sweep

__all__ = ["bench", "bench_family", "bench_sweep"]
