"""PettingZoo's own tests of an environment's two faces."""

from __future__ import annotations

import importlib
import io
import traceback
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

from gpu_zoo.compile import CompileError
from gpu_zoo.errors import MissingDependency
from gpu_zoo.spec import EnvSpec
from gpu_zoo.testing.play import Subject
from gpu_zoo.wrappers.pettingzoo import ParallelFace, drop_in

CHECK = "check_pettingzoo"


def check_pettingzoo(
    spec: EnvSpec, params: Mapping[str, Any] | None = None, *, num_cycles: int = 200
) -> None:
    """Run PettingZoo's API tests and seed tests on the parallel and on the AEC environment.

    What they print, and their warnings, are matters of taste and are not shown.

    Args:
        spec: the environment.
        params: its parameters.
        num_cycles: steps that each test takes.

    Raises:
        CheckFailed: which of the tests failed, and what it said.
    """
    subject = Subject(spec, params or {}, "reference")
    faces = drop_in(spec)
    aec = partial(faces.env, **subject.params)
    parallel = partial(_drawing_allowed, partial(faces.parallel_env, **subject.params))
    own = _pettingzoo_tests()
    tests: dict[str, Callable[[], object]] = {
        "parallel_api_test": lambda: own.parallel_api_test(parallel(), num_cycles=num_cycles),
        "api_test": lambda: own.api_test(aec(), num_cycles=num_cycles),
        "parallel_seed_test": lambda: own.parallel_seed_test(parallel, num_cycles=num_cycles),
        "seed_test": lambda: own.seed_test(aec, num_cycles=num_cycles),
    }
    for name, test in tests.items():
        problem = _problem(test)
        if problem:
            raise subject.failure(CHECK, f"{name}: {problem}")


def _drawing_allowed(make: Callable[[], ParallelFace]) -> ParallelFace:
    """An environment whose action spaces draw allowed actions where no mask is given.

    PettingZoo's tests of parallel environments look for masks in observations, and not in infos
    as its other tests do.
    """
    env = make()
    for agent in env.possible_agents:
        space: Any = env.action_space(agent)
        if env.game.action_mask(agent) is not None:
            space.sample = partial(_draw, env, agent, space.sample)
    return env


def _draw(env: ParallelFace, agent: str, sample: Callable[..., Any]) -> Any:
    return sample(env.game.action_mask(agent))


def _pettingzoo_tests() -> Any:
    with warnings.catch_warnings():  # it imports what it has deprecated itself
        warnings.simplefilter("ignore")
        return importlib.import_module("pettingzoo.test")


def _problem(test: Callable[[], object]) -> str:
    """What a test says in one line, with its place in the test; empty if it passes."""
    quiet = io.StringIO()
    try:
        with redirect_stdout(quiet), redirect_stderr(quiet), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            test()
    except (CompileError, MissingDependency):
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        said = " ".join(str(error).split()) or last.line
        return f"{type(error).__name__}: {said} ({Path(last.filename).name}:{last.lineno})"
    return ""
