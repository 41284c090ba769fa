"""Ours and the peers, in turns."""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gpu_zoo.bench.contenders import PEERS, Builder, drop_in, ours, peer_names, plain_python
from gpu_zoo.bench.report import (
    Report,
    make_report,
    print_family,
    print_report,
    print_sweep,
    write_json,
)
from gpu_zoo.bench.timing import Contender
from gpu_zoo.registry import list_ids

ROUNDS = 3  # turns a pair of contenders takes
SIZES = (1, 64, 1024, 4096, 16384, 65536)
FAMILY_SIZES = (1, 64, 4096, 65536)
SWEEP_SIZES = (1, 64, 2000)
PEERS_AT = 4096


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
        return _take_turns(mine, _start(PEERS[peer], name, mine.num_envs, device, seconds))
    except Exception as error:
        return f"{peer} at {mine.num_envs:,}: failed: {type(error).__name__}: {str(error)[:200]}"


def _take_turns(mine: Contender, theirs: Contender) -> Contender:
    theirs.beside = f"{mine.who} at {mine.num_envs}"
    for _ in range(ROUNDS):
        mine.round()
        theirs.round()
        theirs.ratios.append(mine.rates[-1] / theirs.rates[-1])
    theirs.close()
    return theirs


def bench(
    env_id: str,
    *,
    peers: bool = False,
    num_envs: tuple[int, ...] = SIZES,
    seconds: float = 1.0,
    device: str = "auto",
    json: Path | None = None,
    params: Mapping[str, Any] | None = None,
    rules: Callable[..., Any] | None = None,
) -> None:
    """Measure an environment's steps a second, and other packages' beside it.

    Args:
        env_id: The environment, for example mpe/simple_spread_v3.
        peers: Also time mpe2, JaxMARL, VMAS and Gymnasium, in turns with gpu_zoo, if installed.
        num_envs: The batch sizes to measure.
        seconds: How long a round lasts, about; every row has at least three rounds.
        device: Where gpu_zoo runs: auto, cpu or cuda. Peers that can, follow.
        json: Write the machine, the versions, every row and every round to this file.
        params: The environment's parameters; peers have their own defaults.
        rules: The same rules in plain Python, to time beside the largest batch; see
            gpu_zoo.testing.check_reference.
    """
    importlib.import_module("rich")  # if it is missing, say so now and not after minutes
    beside = num_envs if peers else ()
    rows, report = _measure(env_id, num_envs, beside, seconds, device, params, rules)
    if json is not None:
        write_json(json, report)
    print_report(rows, report)


def bench_family(
    family: str,
    *,
    peers: bool = False,
    num_envs: tuple[int, ...] = FAMILY_SIZES,
    seconds: float = 1.0,
    device: str = "auto",
    json: Path | None = None,
) -> None:
    """Measure every environment of a family, peers at 1 and 4,096 environments; one table of all.

    Where 4,096 is not among the batch sizes, peers are timed at the largest one.

    Args:
        family: The ids' first part, for example mpe.
        peers: Also time mpe2, JaxMARL, VMAS and Gymnasium, in turns with gpu_zoo, if installed.
        num_envs: The batch sizes to measure.
        seconds: How long a round lasts, about; every row has at least three rounds.
        device: Where gpu_zoo runs: auto, cpu or cuda. Peers that can, follow.
        json: Write every environment's report to this file.
    """
    importlib.import_module("rich")
    reports: list[Report] = []
    beside = PEERS_AT if PEERS_AT in num_envs else max(num_envs)
    for env_id in list_ids():
        if env_id.split("/")[0] == family:
            at = (1, beside) if peers else ()
            rows, report = _measure(env_id, num_envs, at, seconds, device)
            reports.append(report)
            print_report(rows, report)
            if json is not None:  # after each, so that a run cut short has left what it found
                write_json(json, reports)
    print_family(reports, beside)


def _measure(
    env_id: str,
    sizes: tuple[int, ...],
    peers_at: tuple[int, ...],
    seconds: float,
    device: str,
    params: Mapping[str, Any] | None = None,
    rules: Callable[..., Any] | None = None,
) -> tuple[list[Contender], Report]:
    """Time the drop-in and all batch sizes; peers beside the sizes in ``peers_at``."""
    params = params or {}
    load = os.getloadavg()[0]
    names = peer_names(env_id)
    rows: list[Contender] = []
    notes: list[str] = []
    vector, single = partial(ours, params=params), partial(drop_in, params=params)
    builds: list[tuple[Builder, int]] = [(single, 1), *((vector, n) for n in sorted(sizes))]
    for build, n in builds:
        mine = _start(build, env_id, n, device, seconds)
        rows.append(mine)
        for peer in PEERS if n in peers_at else ():
            if (
                peer == "mpe2" or build is vector
            ):  # the drop-in's one rival is what it stands in for
                theirs = _compete(mine, peer, names.get(peer, ""), mine.device, seconds)
                if isinstance(theirs, str):
                    notes.append(theirs)
                else:
                    rows.append(theirs)
        if rules is not None and n == max(sizes) and build is vector:
            plain = _start(lambda *_: plain_python(env_id, rules, params), "", 1, "cpu", seconds)
            rows.append(_take_turns(mine, plain))
        while len(mine.rates) < ROUNDS:
            mine.round()
        mine.close()
    return rows, make_report(env_id, rows, list(dict.fromkeys(notes)), seconds, load, params)


def bench_sweep(
    env_id: str,
    name: str,
    values: Sequence[Any],
    *,
    num_envs: tuple[int, ...] = SWEEP_SIZES,
    seconds: float = 1.0,
    device: str = "auto",
    json: Path | None = None,
    params: Mapping[str, Any] | None = None,
) -> None:
    """Measure an environment for several values of a parameter; one table of them all.

    Args:
        env_id: The environment, for example warpdrive/tag_continuous_v0.
        name: The parameter, for example num_runners.
        values: Its values.
        num_envs: The batch sizes to measure.
        seconds: How long a round lasts, about; every row has three rounds.
        device: Where it runs: auto, cpu or cuda.
        json: Write every value's report to this file.
        params: The environment's other parameters.
    """
    importlib.import_module("rich")
    reports: list[Report] = []
    for value in values:
        given, load, rows = {**(params or {}), name: value}, os.getloadavg()[0], []
        for size in sorted(num_envs):
            rows.append(_start(partial(ours, params=given), env_id, size, device, seconds))
            while len(rows[-1].rates) < ROUNDS:
                rows[-1].round()
            rows[-1].close()
        reports.append(make_report(env_id, rows, [], seconds, load, given))
        if json is not None:
            write_json(json, reports)
    print_sweep(name, values, reports)
