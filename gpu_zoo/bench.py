"""`gpu-zoo bench`: steps a second of an environment, beside other packages timed in the same run.

A contender takes a number of steps and comes back when they are done. Ours and a peer's are timed
in turns (ours, peer, ours, peer, ...), so that a machine which slows down while we measure slows
both, and a ratio is taken within a turn. What is reported is the median.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ROUNDS = 3  # turns a pair of contenders takes
BATCHES = 8  # pre-drawn batches of random actions, used in a cycle
EPISODE = 25  # steps after which VMAS, which has no autoreset, is reset

MPE = (
    "simple_v3", "simple_spread_v3", "simple_tag_v3", "simple_adversary_v3", "simple_push_v3",
    "simple_crypto_v3", "simple_reference_v3", "simple_speaker_listener_v4", "simple_world_comm_v3",
)  # fmt: skip
# What the peers call our environments.
NAMES: dict[str, dict[str, str]] = {
    f"mpe/{name}": {"mpe2": f"mpe2.{name}", "jaxmarl": f"MPE_{name}", "vmas": name[:-3]}
    for name in MPE
}
PACKAGES = (
    "gpu-zoo", "gpu_zoo", "numpy", "gymnasium", "pettingzoo", "mpe2", "jax", "jaxlib", "jaxmarl",
    "torch", "vmas", "cupy-cuda12x", "cupy-cuda13x",
)  # fmt: skip


def _processor_seconds() -> float:
    """What all processes together have used since boot, and what the hypervisor took."""
    if not (stat := Path("/proc/stat")).exists():
        return 0.0
    user, nice, system, _, _, irq, softirq, steal = map(int, stat.read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


@dataclass
class Contender:
    """Something to time, and its times."""

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


def _draw(space: Any, shape: tuple[int, ...], seed: int) -> Any:
    """Random actions of a Discrete, MultiDiscrete or Box, from whichever package the space is."""
    rng = np.random.default_rng(seed)
    if hasattr(space, "n"):
        drawn = rng.integers(int(space.n), size=shape, dtype=np.int32)
        return drawn + np.int32(getattr(space, "start", 0))
    shape = (*shape, *space.shape)
    if hasattr(space, "nvec"):
        return rng.integers(space.nvec, size=shape, dtype=np.int32)
    return rng.uniform(np.asarray(space.low), np.asarray(space.high), shape).astype(np.float32)


def _ours(env_id: str, num_envs: int, device: str) -> Contender:
    gpu_zoo: Any = importlib.import_module("gpu_zoo")
    env = gpu_zoo.make_vec(env_id, num_envs=num_envs, device=device)
    env.reset(seed=0)
    cuda = str(env.device).startswith("cuda")
    xp: Any = importlib.import_module("cupy" if cuda else "numpy")
    groups = [(env.group[name], len(agents)) for name, agents in env.groups.items()]
    script: list[list[tuple[Any, Any]]] = [
        [(g.actions, xp.asarray(_draw(g.action_space, (num_envs, size), 100 * t + i)))
         for i, (g, size) in enumerate(groups)]
        for t in range(BATCHES)
    ]  # fmt: skip

    def run(quanta: int) -> None:
        for _ in range(quanta):
            for writes in script:
                for buffer, batch in writes:
                    buffer[...] = batch
                env.step()
        if cuda:
            xp.cuda.Device().synchronize()

    parts = ("actions", "observations", "rewards", "terminations", "truncations")
    moved = sum(getattr(getattr(g, part, None), "nbytes", 0) for g, _ in groups for part in parts)
    method = (
        f"make_vec on {env.device}, {env.numerics} numerics: one env.step() a step from Python, "
        "with the package's default checks; actions written to the "
        "buffers in the timed region; autoreset in the kernel, same step; observations, rewards, "
        "terminations, truncations and final observations all written"
    )
    agents = sum(size for _, size in groups)
    return Contender(
        "gpu_zoo", method, num_envs, agents, BATCHES, run, env.close,
        "cuda" if cuda else "cpu", bytes_per_step=moved / num_envs,
    )  # fmt: skip


def _parallel(who: str, env: Any) -> Contender:
    """PettingZoo's parallel loop: the same lines, and the same actions, for ours and for mpe2."""
    env.reset(seed=0)
    agents = list(env.possible_agents)
    script = [
        {a: _draw(env.action_space(a), (1,), 100 * t + i)[0] for i, a in enumerate(agents)}
        for t in range(EPISODE * BATCHES)
    ]

    def run(quanta: int) -> None:
        for _ in range(quanta):
            for actions in script:
                if not env.agents:
                    env.reset()
                env.step({agent: actions[agent] for agent in env.agents})

    method = "parallel API in one process: dict actions, reset when env.agents is empty"
    return Contender(who, method, 1, len(agents), len(script), run, env.close)


def _drop_in(env_id: str, num_envs: int, device: str) -> Contender:
    gpu_zoo: Any = importlib.import_module("gpu_zoo")
    return _parallel("gpu_zoo drop-in", gpu_zoo.make(env_id))


def _mpe2(name: str, num_envs: int, device: str) -> Contender:
    return _parallel("mpe2", importlib.import_module(name).parallel_env())


def _jaxmarl(name: str, num_envs: int, device: str) -> Contender:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or no memory is left for us
    jax: Any = importlib.import_module("jax")
    chip = jax.devices("cpu" if device == "cpu" else None)[0]
    jax.config.update("jax_default_device", chip)
    env: Any = importlib.import_module("jaxmarl").make(name)
    # A long scan hides the cost of a call; a large batch on a CPU would take minutes for it.
    length = max(4, min(100, 100_000 // num_envs)) if chip.platform == "cpu" else 100
    script = {
        a: jax.numpy.asarray(_draw(env.action_space(a), (BATCHES, num_envs), i))
        for i, a in enumerate(env.agents)
    }

    def step(carry: Any, actions: Any, t: Any) -> Any:
        key, now = jax.random.split(carry[0])
        chosen = {a: batch[t % BATCHES] for a, batch in actions.items()}
        keys = jax.random.split(now, num_envs)
        seen, state, rewards, dones, _ = jax.vmap(env.step)(keys, carry[1], chosen)
        # Carried, these are results of every step: XLA cannot drop the code that makes them.
        return key, state, seen, rewards, dones

    def scan(carry: Any, actions: Any) -> Any:
        steps = jax.numpy.arange(length)
        return jax.lax.scan(lambda c, t: (step(c, actions, t), None), carry, steps)[0]

    key = jax.random.PRNGKey(0)
    _, state = jax.jit(jax.vmap(env.reset))(jax.random.split(key, num_envs))
    shapes = jax.eval_shape(step, (key, state), script, 0)
    # Zeros of each output's own type: in simple_tag some agents' rewards are integers.
    zeros = jax.tree.map(lambda s: jax.numpy.zeros(s.shape, s.dtype), shapes[2:])
    held, rollout = [(key, state, *zeros)], jax.jit(scan)

    def run(quanta: int) -> None:
        for _ in range(quanta):
            held[0] = rollout(held[0], script)
        jax.block_until_ready(held[0])

    method = (
        f"on {chip.platform}: jitted lax.scan of 100 steps a call (on a CPU 100,000 / envs, 4 to "
        "100) over vmapped env.step with its own autoreset; state, observations, rewards and dones "
        "in the carry; pre-drawn actions indexed inside; compilation excluded"
    )
    return Contender("JaxMARL", method, num_envs, len(env.agents), length, run)


def _vmas(name: str, num_envs: int, device: str) -> Contender:
    torch: Any = importlib.import_module("torch")
    chip = "cuda" if device == "cuda" and torch.cuda.is_available() else "cpu"
    env: Any = importlib.import_module("vmas").make_env(
        name, num_envs=num_envs, device=chip, continuous_actions=False, max_steps=EPISODE, seed=0
    )
    spaces = list(enumerate(env.action_space))
    script = [
        [torch.as_tensor(_draw(s, (num_envs, 1), 100 * t + i), device=chip) for i, s in spaces]
        for t in range(BATCHES)
    ]

    def run(quanta: int) -> None:
        for _ in range(quanta):
            for t in range(EPISODE):
                env.step(script[t % BATCHES])
            env.reset()
        if chip == "cuda":
            torch.cuda.synchronize()

    method = (
        f"torch on {chip}, {torch.get_num_threads()} CPU threads: one env.step a step from Python, "
        f"pre-drawn discrete actions of its own space; whole batch reset every {EPISODE} steps"
    )
    return Contender("VMAS", method, num_envs, len(spaces), EPISODE, run)


Builder = Callable[[str, int, str], Contender]
PEERS: dict[str, Builder] = {"mpe2": _mpe2, "jaxmarl": _jaxmarl, "vmas": _vmas}


def _start(build: Builder, name: str, num_envs: int, device: str, seconds: float) -> Contender:
    start = time.perf_counter()
    contender = build(name, num_envs, device)
    contender.run(1)
    contender.first_call_s = time.perf_counter() - start
    contender.calibrate(seconds)
    return contender


def _compete(mine: Contender, peer: str, name: str, device: str, seconds: float) -> Contender | str:
    """Time `mine` and a peer in turns. A peer that is missing or fails is reported, not raised."""
    if not name:
        return f"{peer}: we know of no such environment there"
    if importlib.util.find_spec(peer) is None:
        return f"{peer}: not installed: pip install {peer}"
    try:
        theirs = _start(PEERS[peer], name, mine.num_envs, device, seconds)
        theirs.beside = f"{mine.who} at {mine.num_envs}"
        for _ in range(ROUNDS):
            mine.round()
            theirs.round()
            theirs.ratios.append(mine.rates[-1] / theirs.rates[-1])
        theirs.close()
    except Exception as error:
        return f"{peer} at {mine.num_envs:,}: failed: {type(error).__name__}: {str(error)[:200]}"
    return theirs


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


def _machine(cuda: bool, load: float) -> dict[str, Any]:
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
        properties = importlib.import_module("cupy").cuda.runtime.getDeviceProperties(0)
        machine["gpu"] = properties["name"].decode()
    return machine


def _short(value: float) -> str:
    """Three digits: 1.68M."""
    units = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
    size, unit = next((pair for pair in units if value >= pair[0]), (1.0, ""))
    digits = value / size
    return f"{digits:.{2 if digits < 10 else 1 if digits < 100 else 0}f}{unit}"


def _span(values: list[float]) -> str:
    return f"{_short(min(values))}..{_short(max(values))}"


def _print(rows: list[Contender], report: dict[str, Any]) -> None:
    console_class: Any = importlib.import_module("rich.console").Console
    box = importlib.import_module("rich.box").SIMPLE_HEAD
    table_class: Any = importlib.import_module("rich.table").Table
    table = table_class(title=report["title"], box=box, padding=0)
    # Piped, rich falls back to 80 columns, which would fold the numbers.
    console = console_class(width=max(console_class().width, 120), highlight=False, markup=False)
    for title in ("machine", "versions"):
        console.print(f"{title}: " + ", ".join(f"{k} {v}" for k, v in report[title].items()))
    first = next(row for row in rows if row.who == "gpu_zoo")
    table.add_column("", no_wrap=True)
    for column in ("envs", "env-steps/s", "min..max", "agent-steps/s", "cores busy", "others",
                   "growth", "gpu_zoo/peer", "min..max"):  # fmt: skip
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        rate, turns = median(row.rates), row.ratios
        if not row.beside:
            table.add_section()
        table.add_row(
            row.who, f"{row.num_envs:,}", _short(rate), _span(row.rates),
            _short(rate * row.num_agents), f"{median(row.busy):.2f}", f"{max(row.others):.2f}",
            f"{rate / median(first.rates):,.1f}" if row.who == first.who else "",
            _short(median(turns)) if turns else "", _span(turns) if turns else "",
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


def bench(
    env_id: str,
    *,
    peers: bool = False,
    num_envs: tuple[int, ...] = (1, 64, 1024, 4096, 16384, 65536),
    seconds: float = 1.0,
    device: str = "auto",
    json: Path | None = None,
) -> None:
    """Measure an environment's steps a second, and other packages' beside it.

    Args:
        env_id: The environment, for example mpe/simple_spread_v3.
        peers: Also time mpe2, JaxMARL and VMAS, in turns with gpu_zoo, where they are installed.
        num_envs: The batch sizes to measure.
        seconds: How long a round lasts, about; every row has at least three rounds.
        device: Where gpu_zoo runs: auto, cpu or cuda. Peers that can, follow.
        json: Write the machine, the versions, every row and every round to this file.
    """
    importlib.import_module("rich")  # if it is missing, say so now and not after minutes
    load = os.getloadavg()[0]
    names = NAMES.get(env_id, {})
    rows: list[Contender] = []
    notes: list[str] = []
    builds: list[tuple[Builder, int]] = [(_drop_in, 1), *((_ours, n) for n in sorted(num_envs))]
    for build, n in builds:
        mine = _start(build, env_id, n, device, seconds)
        rows.append(mine)
        for peer in PEERS if peers else ():
            if peer == "mpe2" or build is _ours:  # the drop-in's one rival is what it stands in for
                theirs = _compete(mine, peer, names.get(peer, ""), mine.device, seconds)
                if isinstance(theirs, str):
                    notes.append(theirs)
                else:
                    rows.append(theirs)
        while len(mine.rates) < ROUNDS:
            mine.round()
        mine.close()
    notes = [*dict.fromkeys(notes), _memory_note(mine), _company_note(rows)]
    report = {
        "title": f"{env_id}: median of rounds of about {seconds} s",
        "machine": _machine(mine.device == "cuda", load),
        "versions": {d.name: d.version for d in distributions() if d.name in PACKAGES},
        "notes": notes,
        "rows": [row.as_dict() for row in rows],
    }
    if json is not None:
        json.write_text(importlib.import_module("json").dumps(report, indent=1) + "\n")
    _print(rows, report)
