"""What a run has covered, in one line at its end: a green run that skipped all says so."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from cases import Case

import gpu_zoo
from gpu_zoo import registry
from gpu_zoo.backends import why_no_cuda

_covered: set[tuple[str, str, str]] = set()  # environment, backend, build
_left_out: Counter[str] = Counter()


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    monkeypatch.setattr(registry, "ENVIRONMENTS", dict(registry.ENVIRONMENTS))
    try:
        from pettingzoo.env_registry import registration
    except ImportError:  # PettingZoo has it since 1.27
        return
    for name in ("aec_registry", "parallel_registry"):
        table: dict[str, Any] = getattr(registration, name)
        for key in list(table):
            monkeypatch.setitem(table, key, table[key])


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
        for build in marker.args if marker else ("plain",):
            report.user_properties.append(("covered", (case.id, backend, build)))
    return report


# With several processes (pytest -n) a test's report, and what a worker knows at its end, travel to
# the process that prints.


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _covered.update(tuple(value) for name, value in report.user_properties if name == "covered")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(_left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    # Every worker collects, and so leaves out, the same tests.
    _left_out.update(Counter(node.workeroutput["left_out"]) - _left_out)


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
