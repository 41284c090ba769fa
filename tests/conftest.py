"""What a run has covered, in one line at its end: a green run that skipped all says so."""

from __future__ import annotations

from collections import Counter

import pytest
from cases import Case

import gpu_zoo
from gpu_zoo.backends import why_no_cuda

_covered: set[tuple[str, str, str]] = set()  # environment, backend, build
_left_out: Counter[str] = Counter()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "covers(*builds): the builds of a kernel that a test runs; else plain"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    report = yield
    case = item.callspec.params.get("case") if hasattr(item, "callspec") else None
    if report.when == "call" and report.passed and isinstance(case, Case):
        backend = "cuda" if item.get_closest_marker("gpu") else "cpu"
        marker = item.get_closest_marker("covers")
        _covered.update((case.id, backend, b) for b in (marker.args if marker else ("plain",)))
    return report


def pytest_deselected(items: list[pytest.Item]) -> None:
    for item in items:
        kinds = [kind for kind in ("gpu", "slow") if item.get_closest_marker(kind)]
        _left_out[kinds[0] if kinds else "other"] += 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _covered:
        return  # a run of other tests
    environments = {env for env, _, _ in _covered}
    backends = sorted({backend for _, backend, _ in _covered})
    builds = sorted({build for _, _, build in _covered})
    skips = []
    if "cuda" not in backends:
        reason = why_no_cuda() or f"{_left_out['gpu']} tests, run them with -m gpu"
        skips.append(f"cuda skipped: {reason}")
    if _left_out["slow"]:
        skips.append(f"{_left_out['slow']} slow tests left out, run them with -m slow")
    missing = sorted(set(gpu_zoo.list_ids()) - environments)
    if missing:
        skips.append(f"not covered: {', '.join(missing)}")
    terminalreporter.write_line(
        f"{len(environments)} environments, backends: {', '.join(backends)}, "
        f"builds: {', '.join(builds)} ({'; '.join(skips) or 'nothing skipped'})"
    )
