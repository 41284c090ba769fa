"""Ours and the peers, in turns."""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from pathlib import Path

from gpu_zoo.bench.contenders import PEERS, Builder, drop_in, ours, peer_names
from gpu_zoo.bench.report import Report, make_report, print_family, print_report, write_json
from gpu_zoo.bench.timing import Contender
from gpu_zoo.registry import list_ids

ROUNDS = 3  # turns a pair of contenders takes
SIZES = (1, 64, 1024, 4096, 16384, 65536)
FAMILY_SIZES = (1, 64, 4096, 65536)
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


def bench(
    env_id: str,
    *,
    peers: bool = False,
    num_envs: tuple[int, ...] = SIZES,
    seconds: float = 1.0,
    device: str = "auto",
    json: Path | None = None,
) -> None:
    """Measure an environment's steps a second, and other packages' beside it.

    Args:
        env_id: The environment, for example mpe/simple_spread_v3.
        peers: Also time mpe2, JaxMARL, VMAS and Gymnasium, in turns with gpu_zoo, if installed.
        num_envs: The batch sizes to measure.
        seconds: How long a round lasts, about; every row has at least three rounds.
        device: Where gpu_zoo runs: auto, cpu or cuda. Peers that can, follow.
        json: Write the machine, the versions, every row and every round to this file.
    """
    importlib.import_module("rich")  # if it is missing, say so now and not after minutes
    rows, report = _measure(env_id, num_envs, num_envs if peers else (), seconds, device)
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
    env_id: str, sizes: tuple[int, ...], peers_at: tuple[int, ...], seconds: float, device: str
) -> tuple[list[Contender], Report]:
    """Time the drop-in and all batch sizes; peers beside the sizes in ``peers_at``."""
    load = os.getloadavg()[0]
    names = peer_names(env_id)
    rows: list[Contender] = []
    notes: list[str] = []
    builds: list[tuple[Builder, int]] = [(drop_in, 1), *((ours, n) for n in sorted(sizes))]
    for build, n in builds:
        mine = _start(build, env_id, n, device, seconds)
        rows.append(mine)
        for peer in PEERS if n in peers_at else ():
            if peer == "mpe2" or build is ours:  # the drop-in's one rival is what it stands in for
                theirs = _compete(mine, peer, names.get(peer, ""), mine.device, seconds)
                if isinstance(theirs, str):
                    notes.append(theirs)
                else:
                    rows.append(theirs)
        while len(mine.rates) < ROUNDS:
            mine.round()
        mine.close()
    return rows, make_report(env_id, rows, list(dict.fromkeys(notes)), seconds, load)
