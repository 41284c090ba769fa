"""Something to time, and its times."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any


def _processor_seconds() -> float:
    """What all processes together have used since boot, and what the hypervisor took."""
    if not (stat := Path("/proc/stat")).exists():
        return 0.0
    user, nice, system, _, _, irq, softirq, steal = map(int, stat.read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


@dataclass
class Contender:
    """Something to time, and its times, round by round."""

    who: str
    method: str
    num_envs: int
    num_agents: int
    quantum: int  # steps of each environment in the least work that `run` can do
    run: Callable[[int], None]  # does that many quanta; the work is finished when it returns
    close: Callable[[], None] = lambda: None
    device: str = "cpu"
    beside: str = ""  # for a peer: what of ours it took turns with
    bytes_per_step: float = 0.0
    first_call_s: float = 0.0  # building and compiling, never part of a rate
    quanta: int = 1
    rates: list[float] = field(default_factory=list)  # environment steps a second, by round
    busy: list[float] = field(default_factory=list)  # processor seconds a second, by round
    others: list[float] = field(default_factory=list)  # the same, of all other processes
    ratios: list[float] = field(default_factory=list)  # gpu_zoo's rate over this one's, by round

    def calibrate(self, seconds: float) -> None:
        """Find how many quanta fill a round; on the way everything gets warm."""
        elapsed = 0.0
        while elapsed < seconds / 10:
            self.quanta *= 2 if elapsed else 1
            start = time.perf_counter()
            self.run(self.quanta)
            elapsed = time.perf_counter() - start
        self.quanta = max(1, round(self.quanta * seconds / elapsed))

    def round(self) -> None:
        """Take the times of one turn."""
        time.sleep(0.05)  # another library's worker threads may still be spinning: let them sleep
        start, cpu, total = time.perf_counter(), time.process_time(), _processor_seconds()
        self.run(self.quanta)
        elapsed, cpu = time.perf_counter() - start, time.process_time() - cpu
        self.rates.append(self.quanta * self.quantum * self.num_envs / elapsed)
        self.busy.append(cpu / elapsed)
        self.others.append(max(0.0, _processor_seconds() - total - cpu) / elapsed)

    def as_dict(self) -> dict[str, Any]:
        """Everything but the functions, for JSON."""
        found = {k: v for k, v in vars(self).items() if not callable(v)}
        rate = median(self.rates)
        return found | {"env_steps_per_s": rate, "agent_steps_per_s": rate * self.num_agents}
