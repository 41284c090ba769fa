"""What a GPU should do, worked out without one: a table for docs/performance.md.

python docs/_scripts/gpu_predictions.py            write it between the markers
python docs/_scripts/gpu_predictions.py --print    print it

Needs NVRTC (pip install 'gpu-zoo[cuda13]'), but no GPU. Registers and spills are the compiler's;
bytes are counted from the buffers' layout, every one once: that is what must pass between the chip
and its memory in a step if each warp touches each piece of memory once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tables import table

import gpu_zoo
from gpu_zoo import compile as compiler
from gpu_zoo import nvrtc
from gpu_zoo.prelude import Program
from gpu_zoo.testing import ARCHITECTURES

PAGE = Path(__file__).resolve().parents[1] / "performance.md"
BEGIN, END = "<!-- predictions: begin -->", "<!-- predictions: end -->"
# Read and written in a step, in bytes an environment: steps and done.
COUNTERS = 4 + 4 + 1 + 1
# Read and written: an agent's return so far.
RETURNS = 4 + 4
BANDWIDTH = {"A100 (1.56 TB/s)": 1.555e12, "H200 (4.8 TB/s)": 4.8e12}


def bytes_a_step(program: Program) -> dict[str, int]:
    """Bytes an environment's step moves: what is read and written, by kind."""
    fields = program.fields.values()
    observed = sum(group.count * group.obs_size for group in program.groups) * 4
    return {
        "state": sum((1 if f.at_reset else 2) * f.size * f.dtype.itemsize for f in fields),
        "observations": observed,
        "actions": sum(group.count * max(1, group.action_size) for group in program.groups) * 4,
        "rewards and flags": program.num_agents * (4 + 1 + 1),
        "returns and counters": program.num_agents * RETURNS + COUNTERS,
    }


def rows() -> Iterator[tuple[str, ...]]:
    """One row an environment, with default parameters in fast numerics."""
    for env_id in gpu_zoo.list_ids():
        spec = gpu_zoo.spec(env_id)
        program = Program(spec, spec.resolve({}))
        source = compiler.flatten(program)
        used = []
        for arch in ARCHITECTURES:
            step = nvrtc.usage(nvrtc.compile_cubin(source, spec.name, arch)[1])["zoo_step"]
            used.append(f"{step.registers}, {step.spills}")
        moved = sum(bytes_a_step(program).values())
        share = bytes_a_step(program)["observations"] / moved
        limits = [f"{rate / moved / 1e9:.1f} G" for rate in BANDWIDTH.values()]
        yield (spec.name, *used, f"{moved}", f"{share:.0%}", *limits)


def predictions() -> str:
    """The table in Markdown."""
    header = ("", *ARCHITECTURES, "bytes a step", "observations' share", *BANDWIDTH)
    return "\n".join(table(header, rows())).rstrip()


def main() -> int:
    """Write or print the table."""
    if "--print" in sys.argv[1:]:
        print(predictions())
        return 0
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{predictions()}\n{END}{rest.split(END)[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
