"""What is said of the times: tables, the machine, the versions, the memory's bandwidth."""

from __future__ import annotations

import importlib
import os
import platform
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distributions
from pathlib import Path
from statistics import median
from typing import Any

from gpu_zoo.bench.timing import Contender

PACKAGES = (
    "gpu-zoo", "gpu_zoo", "numpy", "gymnasium", "pettingzoo", "mpe2", "jax", "jaxlib", "jaxmarl",
    "torch", "vmas", "cupy-cuda12x", "cupy-cuda13x",
)  # fmt: skip
RIVALS = ("mpe2", "JaxMARL", "VMAS", "Gymnasium")
Report = dict[str, Any]


def _copy_rate(xp: Any) -> float:
    """Bytes a second, read plus written, of plain copies between large arrays, on all cores."""
    workers = 1 if hasattr(xp, "cuda") else os.cpu_count() or 1
    pairs = [(xp.ones(2**25, "f4"), xp.ones(2**25, "f4")) for _ in range(workers)]
    rates = []
    with ThreadPoolExecutor(workers) as pool:  # NumPy releases the GIL while it copies
        for _ in range(7):
            start = time.perf_counter()
            list(pool.map(lambda pair: xp.copyto(*pair), pairs))
            if hasattr(xp, "cuda"):
                xp.cuda.Device().synchronize()
            rates.append(workers * 2**28 / (time.perf_counter() - start))
    return median(rates[1:])


def _memory_note(mine: Contender) -> str:
    copies = _copy_rate(importlib.import_module("cupy" if mine.device == "cuda" else "numpy"))
    moved = mine.bytes_per_step * median(mine.rates)
    return (
        f"memory: gpu_zoo at {mine.num_envs:,}: {mine.bytes_per_step:.0f} bytes of actions, "
        f"observations, rewards and flags a step (state not counted) x its rate = "
        f"{moved / 1e9:.2f} GB/s; copies of 128 MiB arrays, measured here: {copies / 1e9:.1f} GB/s"
    )


def _company_note(rows: list[Contender]) -> str:
    """Others on the machine slow most whoever waits for all of its threads at every step."""
    others = [share for row in rows for share in row.others]
    crowded = sum(share > 0.1 for share in others)
    advice = "; repeat on an idle machine before you trust a ratio" if crowded else ""
    return f"company: others took over 0.1 cores in {crowded} of {len(others)} rounds{advice}"


def describe_machine(cuda: bool, load: float) -> dict[str, Any]:
    """Processor, cores, system, Python, and what else was running; ``load`` is the average then."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    machine: dict[str, Any] = {
        "processor": [*models, platform.processor()][0],
        "cores": os.cpu_count(),
        "GPU_ZOO_NUM_THREADS": os.environ.get("GPU_ZOO_NUM_THREADS", "not set"),
        "load average at start": load,
        "system": platform.platform(),
        "python": platform.python_version(),
    }
    if cuda:
        properties = importlib.import_module("cupy").cuda.runtime.getDeviceProperties(
            importlib.import_module("cupy").cuda.Device().id
        )
        machine["gpu"] = properties["name"].decode()
    return machine


def short(value: float) -> str:
    """Three digits: 1.68M."""
    units = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
    size, unit = next((pair for pair in units if value >= pair[0]), (1.0, ""))
    digits = value / size
    return f"{digits:.{2 if digits < 10 else 1 if digits < 100 else 0}f}{unit}"


def span(values: Sequence[float]) -> str:
    """The least and the most: 1.61M..1.70M."""
    return f"{short(min(values))}..{short(max(values))}"


def wide_console() -> Any:
    """Where tables go. Piped, rich falls back to 80 columns, which would fold the numbers."""
    console: Any = importlib.import_module("rich.console").Console
    return console(width=max(console().width, 120), highlight=False, markup=False)


def new_table(title: str) -> Any:
    """A table whose first column names the rows."""
    box = importlib.import_module("rich.box").SIMPLE_HEAD
    table: Any = importlib.import_module("rich.table").Table(title=title, box=box, padding=0)
    table.add_column("", no_wrap=True)
    return table


def print_report(rows: list[Contender], report: Report) -> None:
    """The table of one environment, how each contender was timed, and the notes."""
    console, table = wide_console(), new_table(report["title"])
    for title in ("machine", "versions"):
        console.print(f"{title}: " + ", ".join(f"{k} {v}" for k, v in report[title].items()))
    first = next(row for row in rows if row.who == "gpu_zoo")
    for column in ("envs", "env-steps/s", "min..max", "agent-steps/s", "cores busy", "others",
                   "growth", "gpu_zoo/peer", "min..max"):  # fmt: skip
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        rate, turns = median(row.rates), row.ratios
        if not row.beside:
            table.add_section()
        table.add_row(
            row.who, f"{row.num_envs:,}", short(rate), span(row.rates),
            short(rate * row.num_agents), f"{median(row.busy):.2f}", f"{max(row.others):.2f}",
            f"{rate / median(first.rates):,.1f}" if row.who == first.who else "",
            short(median(turns)) if turns else "", span(turns) if turns else "",
        )  # fmt: skip
    console.print(table)
    console.print(
        f"growth: over gpu_zoo at {first.num_envs}. cores busy: processor seconds a second of this "
        "process. others: the most that all other processes and the hypervisor took in a round. "
        "gpu_zoo/peer: of rounds timed in turns with the gpu_zoo row above; below 1, gpu_zoo is "
        "the slower."
    )
    for line in dict.fromkeys(f"- {row.who}: {row.method}" for row in rows):
        console.print(line)
    for note in report["notes"]:
        console.print(f"* {note}")


def make_report(
    env_id: str,
    rows: list[Contender],
    notes: list[str],
    seconds: float,
    load: float,
    params: Mapping[str, Any],
) -> Report:
    """All that is known of a run on one environment, for JSON and for printing."""
    mine = next(row for row in reversed(rows) if row.who == "gpu_zoo")
    shown = ", ".join(f"{name}={value}" for name, value in params.items())
    return {
        "env_id": env_id,
        "title": f"{env_id}({shown}): median of rounds of about {seconds} s",
        "params": dict(params),
        "machine": describe_machine(mine.device == "cuda", load),
        "versions": {d.name: d.version for d in distributions() if d.name in PACKAGES},
        "notes": [*notes, _memory_note(mine), _company_note(rows)],
        "rows": [row.as_dict() for row in rows],
    }


def write_json(path: Path, report: Report | list[Report]) -> None:
    """Write to a temporary file beside it and rename, so that none is ever half written."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    text = importlib.import_module("json").dumps(report, indent=1)
    # Lists of numbers on one line each. No string of ours holds a bracket at a line's end.
    text = re.sub(r"\[\n\s+([^\[\]{}\"]+?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text)
    unfinished.write_text(text + "\n")
    os.replace(unfinished, path)


def print_family(reports: list[Report], beside: int) -> None:
    """One line an environment: our rates, then how many times each peer's rate they are.

    Args:
        reports: one an environment.
        beside: the batch size at which peers were timed.
    """
    sizes = sorted({r["num_envs"] for report in reports for r in report["rows"]})
    title = f"env-steps/s by batch size, and times the rate of peers: drop-in, then at {beside:,}"
    table = new_table(title)
    rivals = [
        ("gpu_zoo drop-in", "mpe2", 1),
        *(("gpu_zoo", who, beside) for who in RIVALS),
    ]
    for column in [f"{n:,}" for n in sizes] + ["drop-in/mpe2", *(f"x {who}" for who in RIVALS)]:
        table.add_column(column, justify="right", no_wrap=True)
    for report in reports:
        rates = {
            r["num_envs"]: r["env_steps_per_s"] for r in report["rows"] if r["who"] == "gpu_zoo"
        }
        cells = [short(rates[n]) if n in rates else "" for n in sizes]
        cells += [_ratio(report, *rival) for rival in rivals]
        table.add_row(report["env_id"], *cells)
    wide_console().print(table)


def print_sweep(name: str, values: Sequence[Any], reports: list[Report]) -> None:
    """Rates by batch size, a line for each value of a parameter, and what an agent's step takes."""
    console, sizes = wide_console(), [row["num_envs"] for row in reports[0]["rows"]]
    for title in ("machine", "versions"):
        found = reports[0][title].items()
        console.print(f"{title}: " + ", ".join(f"{key} {value}" for key, value in found))
    table = new_table(f"env-steps/s by batch size; ns of an agent's step at {sizes[-1]:,}")
    for column in ("agents", *(f"{n:,}" for n in sizes), "ns"):
        table.add_column(column, justify="right", no_wrap=True)
    for value, report in zip(values, reports, strict=True):
        rows = report["rows"]
        rates = [short(row["env_steps_per_s"]) for row in rows]
        each = 1e9 / rows[-1]["agent_steps_per_s"]
        table.add_row(f"{name}={value}", str(rows[0]["num_agents"]), *rates, f"{each:.0f}")
    console.print(table)
    console.print("- " + reports[0]["rows"][0]["method"])


def _ratio(report: Report, who: str, peer: str, num_envs: int) -> str:
    beside = f"{who} at {num_envs}"
    found = [r["ratios"] for r in report["rows"] if r["who"] == peer and r["beside"] == beside]
    return short(median(found[0])) if found else "-"
