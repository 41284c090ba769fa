"""Checks of environments, ours and yours.

    from gpu_zoo.testing import check_env
    check_env("mpe/simple_spread_v3", params={"N": 5})

Each check raises :class:`CheckFailed` with one line that names the environment of the batch, the
step, the array and the index where a promise is first broken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpu_zoo.spec import EnvSpec
from gpu_zoo.testing.builds import (
    ARCHITECTURES,
    check_bounds,
    check_builds,
    check_nvrtc,
    check_races,
)
from gpu_zoo.testing.contract import Coverage, check_contract
from gpu_zoo.testing.determinism import check_determinism
from gpu_zoo.testing.faces import check_pettingzoo
from gpu_zoo.testing.play import CheckFailed, CheckSkipped
from gpu_zoo.testing.reference import Rules, check_reference

__all__ = [
    "ARCHITECTURES",
    "CHECKS",
    "CheckFailed",
    "CheckSkipped",
    "Coverage",
    "Rules",
    "check_bounds",
    "check_builds",
    "check_contract",
    "check_determinism",
    "check_env",
    "check_nvrtc",
    "check_pettingzoo",
    "check_races",
    "check_reference",
]

# Races come before builds: threads that wait for ever would hang the latter.
CHECKS: dict[str, Callable[..., object]] = {
    "contract": check_contract,
    "determinism": check_determinism,
    "reference": check_reference,
    "pettingzoo": check_pettingzoo,
    "races": check_races,
    "bounds": check_bounds,
    "builds": check_builds,
    "nvrtc": check_nvrtc,
}


def check_env(
    env: EnvSpec | str,
    params: Mapping[str, Any] | None = None,
    only: Iterable[str] | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    rules: Callable[..., Rules] | None = None,
) -> dict[str, str]:
    """Run all checks that work on this machine, and print a line for each.

    Args:
        env: a spec, or the id of a registered environment.
        params: the environment's parameters.
        only: some of :data:`CHECKS`.
        settings: more arguments of a check, such as ``{"determinism": {"random_start": False}}``.
        rules: the same environment in plain Python, a class like :class:`Rules`.

    Returns:
        What was found by check: ``"ok"``, or ``"skipped: ..."`` with the reason.

    Raises:
        CheckFailed: what the first failed check found; the others have run all the same.
        CompileError: the kernel does not compile; the message begins with the author's line.
    """
    from gpu_zoo.registry import spec as find_spec

    spec = env if isinstance(env, EnvSpec) else find_spec(env)
    given = {name: dict(more) for name, more in (settings or {}).items()}
    if rules is not None:
        given.setdefault("reference", {})["rules"] = rules
    report: dict[str, str] = {}
    failures: list[CheckFailed] = []
    for name in only or CHECKS:
        start = time.perf_counter()
        if name == "builds" and report.get("races", "").startswith("failed"):
            report[name] = "skipped: there are races"
        else:
            try:
                CHECKS[name](spec, params or {}, **given.get(name, {}))
                report[name] = "ok"
            except CheckSkipped as reason:
                report[name] = f"skipped: {reason}"
            except CheckFailed as failure:
                report[name] = f"failed: {failure}"
                failures.append(failure)
        print(f"{name:12} {time.perf_counter() - start:5.1f} s  {report[name]}", flush=True)
    if failures:
        raise failures[0]
    return report
