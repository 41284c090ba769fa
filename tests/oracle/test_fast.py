"""Fast numerics against reference numerics, from the same states under the same actions.

Reference numerics are mpe2's own numbers (test_mpe2.py), so this measures how far float32 and our
own exp and log stray from mpe2. A fast reset draws other random numbers: there the distributions
must agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from oracle.episodes import compile_variants
from oracle.mutants import WITH_CONTACTS, mutated
from scipy import stats

import gpu_zoo
from gpu_zoo import EnvSpec, VectorEnv

Array = npt.NDArray[Any]

NUM_ENVS = 2048
STEPS = 25
VARIANTS = 2
WARM_UP = (0, 4, 12)  # steps before the state is taken


@dataclass(frozen=True)
class Tolerance:
    """Accepted errors, absolute: entries are of the order of 1.

    Attributes:
        first: observations after one step, in every environment; rewards, which add several
            distances, twice that.
        most: observations after 25 steps, in 99.5 % of the environments.
        all: observations after 25 steps, in every environment.
    """

    first: float
    most: float
    all: float


# One step: a float32 near 4 has a spacing of 4.8e-7, a position takes a few roundings, and a
# stiff contact (100 / 0.001 per unit of length, over a step of 0.1) adds as much again.
# 25 steps: contacts are chaotic. Each one multiplies an error, so a few environments stray far.
TOLERANCES = {
    "mpe/simple_spread_v3": Tolerance(first=1e-6, most=3e-5, all=0.03),
    "mpe/simple_tag_v3": Tolerance(first=1e-6, most=3e-5, all=0.03),
}
DEFAULT_TOLERANCE = Tolerance(first=1e-6, most=3e-5, all=0.03)
# Of rewards and flags, this part may fall on the other side of a threshold (a touch, a covered
# landmark, who is nearest): a distance within 1e-6 of it has about that probability.
FLIPS = 1e-4

ROWS = [
    pytest.param(env_id, v, id=f"{env_id.split('/')[1]}-{v}")
    for env_id in gpu_zoo.list_ids()
    if env_id.startswith("mpe/")
    for v in range(len(compile_variants(gpu_zoo.spec(env_id), VARIANTS)))
]
WORST: dict[str, dict[str, float]] = {}


@pytest.fixture(scope="module", autouse=True)
def report(request: pytest.FixtureRequest) -> Iterator[None]:
    """Say what was measured."""
    yield
    capture: Any = request.config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled():
        for env_id, worst in WORST.items():
            measured = ", ".join(f"{what} {value:.1e}" for what, value in worst.items())
            print(f"\n{env_id} fast - reference: {measured}")


def pair(
    spec: EnvSpec, params: dict[str, Any], fast_spec: EnvSpec | None = None
) -> list[VectorEnv]:
    """The same batch in fast and in reference numerics."""
    params = {spec.time_limit: 1000, **params}
    modes: Any = ((fast_spec or spec, "fast"), (spec, "reference"))
    return [
        VectorEnv(one, NUM_ENVS, numerics=numerics, autoreset_mode="disabled", **params)
        for one, numerics in modes
    ]


def random_actions(env: VectorEnv, rng: np.random.Generator) -> dict[str, Array]:
    actions: dict[str, Array] = {}
    for agent in env.agents:
        space: Any = env.single_action_space(agent)
        if hasattr(space, "n"):
            actions[agent] = rng.integers(space.n, size=env.num_envs)
        elif hasattr(space, "nvec"):
            actions[agent] = rng.integers(space.nvec, size=(env.num_envs, len(space.nvec)))
        else:
            actions[agent] = rng.random((env.num_envs, *space.shape), np.float32)
    return actions


def without_generators(spec: EnvSpec) -> list[str]:
    """State fields that both numerics have alike; random streams they do not."""
    return [name for name, field in spec.state.items() if field.dtype != "rng"]


def generators(env: VectorEnv) -> Array:
    """The random streams an environment draws from between resets: one row an environment."""
    state, spec = env.get_state(), env.spec
    words = [state[name] for name, field in spec.state.items() if field.dtype == "rng"]
    return np.concatenate([np.empty((env.num_envs, 0), np.int64), *words], axis=1)


def inject(fast: VectorEnv, reference: VectorEnv, warm_up: int, crowd: float) -> None:
    """Put the same states, which float32 holds exactly, into both.

    Args:
        fast: gets the states.
        reference: gets the states; a few of its own steps make them.
        warm_up: how many.
        crowd: factor on the agents' positions in every other environment, to make contacts.
    """
    rng = np.random.default_rng(warm_up)
    reference.reset(seed=warm_up)
    fast.reset(seed=0)
    for _ in range(warm_up):
        reference.step(random_actions(reference, rng))
    state = {name: reference.get_state()[name] for name in without_generators(reference.spec)}
    if "pos" in state:
        state["pos"][::2] *= crowd
    wanted = fast.get_state()
    small = {name: value.astype(wanted[name].dtype) for name, value in state.items()}
    fast.set_state(small)
    reference.set_state({name: small[name].astype(state[name].dtype) for name in small})


Results = tuple[dict[str, Array], ...]


def comparable(envs: list[VectorEnv], before: list[Array], results: list[Any]) -> list[Results]:
    """Results of the environments that have not drawn random numbers since ``before``.

    Other numbers come out of the two generators, so the episodes part.
    """
    same = np.ones(NUM_ENVS, np.bool_)
    for env, words in zip(envs, before, strict=True):
        same &= (generators(env) == words).all(axis=1)
    assert same.mean() > 0.2
    return [
        tuple({agent: array[same] for agent, array in part.items()} for part in result[:4])
        for result in results
    ]


def errors(ours: dict[str, Array], theirs: dict[str, Array]) -> Array:
    """Largest difference in each environment; not a number counts as infinite."""
    differences = [
        np.abs(ours[a].astype(np.float64) - theirs[a]).reshape(len(theirs[a]), -1) for a in theirs
    ]
    worst: Array = np.nan_to_num(np.concatenate(differences, axis=1), nan=np.inf).max(1)
    return worst


def flips(ours: dict[str, Array], theirs: dict[str, Array], limit: float) -> int:
    return int(sum((np.abs(ours[a].astype(float) - theirs[a]) > limit).sum() for a in theirs))


def note(env_id: str, what: str, value: float) -> None:
    worst = WORST.setdefault(env_id, {})
    worst[what] = max(worst.get(what, 0.0), value)


def check_one_step(fast: VectorEnv, reference: VectorEnv, tolerance: Tolerance) -> dict[str, float]:
    """Returns the largest errors, the few environments aside that may fall across a threshold."""
    rng = np.random.default_rng(1)
    measured = {"1 step, observations": 0.0, "1 step, rewards": 0.0}
    flipped = total = 0
    for warm_up in WARM_UP:
        inject(fast, reference, warm_up, crowd=0.5)
        for name in reference.agents:  # observed anew, before any step
            there = reference.group[reference._layout(name).name].observations
            here = fast.group[fast._layout(name).name].observations
            np.testing.assert_allclose(here, there, rtol=0, atol=1e-6)
        actions, before = random_actions(fast, rng), [generators(fast), generators(reference)]
        ours, theirs = comparable(
            [fast, reference], before, [fast.step(actions), reference.step(actions)]
        )
        observed, rewarded = errors(ours[0], theirs[0]), errors(ours[1], theirs[1])
        for name, found in zip(measured, (observed, rewarded), strict=True):
            measured[name] = max(measured[name], float(np.sort(found)[-2]))
        flipped += int((observed > tolerance.first).sum())
        flipped += int((rewarded > 2 * tolerance.first).sum())
        flipped += flips(ours[2], theirs[2], 0) + flips(ours[3], theirs[3], 0)
        total += NUM_ENVS * len(reference.agents)
    assert flipped <= FLIPS * total, f"{flipped} of {total}"
    return measured


@pytest.mark.parametrize(("env_id", "number"), ROWS)
def test_one_step(env_id: str, number: int) -> None:
    spec = gpu_zoo.spec(env_id)
    fast, reference = pair(spec, variant(spec, number))
    measured = check_one_step(fast, reference, TOLERANCES.get(env_id, DEFAULT_TOLERANCE))
    for what, value in measured.items():
        note(env_id, what, value)


@pytest.mark.parametrize(("env_id", "number"), ROWS)
def test_an_episode(env_id: str, number: int) -> None:
    spec = gpu_zoo.spec(env_id)
    tolerance = TOLERANCES.get(env_id, DEFAULT_TOLERANCE)
    fast, reference = pair(spec, variant(spec, number))
    rng = np.random.default_rng(2)
    inject(fast, reference, 0, crowd=1)
    before = [generators(fast), generators(reference)]
    for _ in range(STEPS):
        actions = random_actions(fast, rng)
        results = [fast.step(actions), reference.step(actions)]
    ours, theirs = comparable([fast, reference], before, results)
    observed = errors(ours[0], theirs[0])
    note(env_id, "25 steps, 99.5 %", np.quantile(observed, 0.995))
    note(env_id, "25 steps, all", observed.max())
    assert np.quantile(observed, 0.995) <= tolerance.most
    assert observed.max() <= tolerance.all
    assert flips(ours[1], theirs[1], 0.05) <= 1e-3 * NUM_ENVS * len(fast.agents)
    assert flips(ours[2], theirs[2], 0) == flips(ours[3], theirs[3], 0) == 0


def variant(spec: EnvSpec, number: int) -> dict[str, Any]:
    return compile_variants(spec, VARIANTS)[number]


# Resets --------------------------------------------------------------------------------------

SAMPLES = 8192
EPISODES = 3
P_VALUE = 1e-4  # of all tests of a column together; seeds are fixed, so no run differs
# Half the side of the square in which bodies are placed, or of a range, by state field.
SQUARES = {
    "classic/acrobot_v1": {"theta": 0.1, "speed": 0.1},
    "classic/cartpole_v1": dict.fromkeys(("x", "x_dot", "theta", "theta_dot"), 0.05),
    "classic/pendulum_v1": {"theta": np.pi, "theta_dot": 1.0},
    "mpe/simple_formation_v1": {"pos": 1.0, "landmark": 0.5},
    "mpe/simple_line_v1": {"pos": 1.0, "landmark": 0.25},
    "mpe/simple_spread_v3": {"pos": 1.0, "landmark": 1.0},
    "mpe/simple_tag_v3": {"pos": 1.0, "landmark": 0.9},
}
# Entries of a state field that are drawn around others: neither uniform nor independent of them.
DRAWN_AROUND = {"mpe/simple_line_v1": {"landmark": range(2, 4), "target": range(8)}}


def initial_states(spec: EnvSpec, numerics: Any) -> dict[str, Array]:
    """State fields at the start of three episodes, ``(SAMPLES, episodes * entries)`` each.

    The second episode comes from an autoreset inside a step, the third from reset().
    """
    limit: dict[str, Any] = {spec.time_limit: 1}
    env = VectorEnv(spec, SAMPLES, numerics=numerics, autoreset_mode="same_step", **limit)
    parts = []
    for episode in range(EPISODES):
        if episode == 1:
            env.step(random_actions(env, np.random.default_rng(0)))
        else:
            env.reset(seed=11 if episode == 0 else None)
        parts.append({name: env.get_state()[name] for name in without_generators(spec)})
    return {
        name: np.concatenate([p[name].reshape(SAMPLES, -1) for p in parts], axis=1)
        for name in without_generators(spec)
    }


def check_resets(spec: EnvSpec, fast_spec: EnvSpec | None = None) -> None:
    fast = initial_states(fast_spec or spec, "fast")
    reference = initial_states(spec, "reference")
    square = SQUARES.get(spec.id, {})
    columns = []
    for name, values in fast.items():
        for k, (ours, theirs) in enumerate(zip(values.T, reference[name].T, strict=True)):
            where = f"{name}, column {k}"
            if np.ptp(theirs) == 0:
                np.testing.assert_array_equal(ours, theirs[0], err_msg=where)
                continue
            assert same_distribution(ours, theirs) > P_VALUE / len(values.T), where
            if k % (len(values.T) // EPISODES) in DRAWN_AROUND.get(spec.id, {}).get(name, ()):
                continue
            columns.append(ours.astype(np.float64))
            if name in square:
                bound = square[name]
                # So close to the edge comes the largest of that many, but for a chance of e^-20.
                assert bound * (1 - 20 / SAMPLES) < np.abs(ours).max() <= bound, where
                uniform = stats.uniform(-bound, 2 * bound)
                assert stats.kstest(ours, uniform.cdf).pvalue > P_VALUE / len(values.T), where
        if name in square:
            assert len(np.unique(values, axis=0)) == SAMPLES, f"{name}: rows repeat"
    if columns:
        check_independent(np.array(columns))


def same_distribution(ours: Array, theirs: Array) -> float:
    """p-value of the two-sample test: chi squared for integers, Kolmogorov-Smirnov for reals."""
    if np.issubdtype(theirs.dtype, np.floating):
        # Values that are drawn out of a few must not differ by rounding alone.
        return float(stats.ks_2samp(ours, theirs.astype(ours.dtype)).pvalue)
    values = np.unique(np.concatenate([ours, theirs]))
    table = [[(sample == v).sum() for v in values] for sample in (ours, theirs)]
    return float(stats.chi2_contingency(table).pvalue)


def check_independent(columns: Array) -> None:
    """No correlation between entries, episodes, or an environment and its neighbours.

    Also not between squares, which sees a dependence that a symmetric one hides.
    """
    limit = 5.5 / np.sqrt(SAMPLES)
    shifted = [np.roll(columns, shift, axis=1) for shift in (1, 2, 32)]
    for rows in (np.concatenate([columns, *shifted]), columns**2):
        correlation = np.corrcoef(rows)[: len(columns)]
        correlation[:, : len(columns)][np.eye(len(columns), dtype=bool)] = 0
        worst = np.abs(correlation).max()
        assert worst < limit, f"correlation {worst:.3f}, expected below {limit:.3f}"


@pytest.mark.parametrize("env_id", gpu_zoo.list_ids())
def test_resets_are_equal_in_distribution(env_id: str) -> None:
    check_resets(gpu_zoo.spec(env_id))


# What these tests must see, in fast numerics alone.
STEP_MUTANTS = {
    "time step": ("DT = R(0.1)", "DT = R(0.10001)"),
    "contact margin": ("= R(1e-3)", "= R(1.001e-3)"),
    "contact cut off": (": R(0.08)", ": R(0.005)"),
    "float32 action": ("R(e.control(i, 2) - e.control(i, 1))", "R(e.control(i, 2))"),
}
RESET_MUTANTS = {
    "range": (
        "rng_uniform(rng, -bound, bound);\n    p[1]",
        "rng_uniform(rng, -bound, bound) * R(0.97);\n    p[1]",
    ),
    "shape": ("p[1] = rng_uniform(rng, -bound, bound)", "p[1] = rng_uniform(rng, p[0], bound)"),
    "copied": ("p[1] = rng_uniform(rng, -bound, bound)", "p[1] = -p[0]"),
}


@pytest.mark.parametrize("mutant", STEP_MUTANTS)
@pytest.mark.parametrize("env_id", WITH_CONTACTS)
def test_step_mutant_is_caught(env_id: str, mutant: str) -> None:
    spec = gpu_zoo.spec(env_id)
    params = {"continuous_actions": "action" in mutant}
    fast, reference = pair(spec, params, mutated(spec, *STEP_MUTANTS[mutant]))
    with pytest.raises(AssertionError, match=" of "):
        check_one_step(fast, reference, TOLERANCES[env_id])


@pytest.mark.parametrize("mutant", RESET_MUTANTS)
def test_reset_mutant_is_caught(mutant: str) -> None:
    spec = gpu_zoo.spec(WITH_CONTACTS[0])
    with pytest.raises(AssertionError):
        check_resets(spec, mutated(spec, *RESET_MUTANTS[mutant]))
