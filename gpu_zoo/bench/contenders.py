"""The packages that are timed: how each takes a number of steps and finishes them."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gpu_zoo.bench.timing import Contender
from gpu_zoo.registry import GYMNASIUM_NAMES, spec

STARTS = 16  # of episodes, used in a cycle
BATCHES = 8  # pre-drawn batches of random actions, used in a cycle
EPISODE = 25  # steps after which VMAS, which has no autoreset, is reset
# Which of mpe2's environments the other packages have, under names made of mpe2's.
IN_JAXMARL_AND_VMAS = (
    "simple_v3", "simple_spread_v3", "simple_tag_v3", "simple_adversary_v3", "simple_push_v3",
    "simple_crypto_v3", "simple_reference_v3", "simple_speaker_listener_v4", "simple_world_comm_v3",
)  # fmt: skip


def peer_names(env_id: str) -> dict[str, str]:
    """What each peer that has this environment calls it."""
    entry, names = spec(env_id), {}
    if entry.reference.startswith("mpe2"):
        names["mpe2"] = f"mpe2.{entry.name}"
    if entry.name in IN_JAXMARL_AND_VMAS:
        names["jaxmarl"] = f"MPE_{entry.name}"
        names["vmas"] = entry.name[:-3]
    if env_id in GYMNASIUM_NAMES:
        names["gymnasium"] = GYMNASIUM_NAMES[env_id]
    return names


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


def _steps_at_a_time(env: Any) -> int:
    """Steps of the least work to time: whole episodes where agents leave, as later steps are less
    work then than earlier ones.
    """
    return int(env.params[env.spec.time_limit]) if env.spec.leaving else BATCHES


def ours(
    env_id: str, num_envs: int, device: str, params: Mapping[str, Any] | None = None
) -> Contender:
    """The vector environment, stepped on actions that are written to its buffers."""
    gpu_zoo: Any = importlib.import_module("gpu_zoo")
    env = gpu_zoo.make_vec(env_id, num_envs=num_envs, device=device, **(params or {}))
    env.reset(seed=0)
    cuda = str(env.device).startswith("cuda")
    xp: Any = importlib.import_module("cupy" if cuda else "numpy")
    if cuda:
        xp.cuda.Device(int(env.device.partition(":")[2] or 0)).use()  # for what follows, too
    groups = [(env.group[name], len(agents)) for name, agents in env.groups.items()]
    script: list[list[tuple[Any, Any]]] = [
        [(g.actions, xp.asarray(_draw(g.action_space, (num_envs, size), 100 * t + i)))
         for i, (g, size) in enumerate(groups)]
        for t in range(BATCHES)
    ]  # fmt: skip

    quantum = _steps_at_a_time(env)

    def run(quanta: int) -> None:
        for step in range(quanta * quantum):
            for buffer, batch in script[step % BATCHES]:
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
        "gpu_zoo", method, num_envs, agents, quantum, run, env.close,
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


def drop_in(
    env_id: str, num_envs: int, device: str, params: Mapping[str, Any] | None = None
) -> Contender:
    """The stand-in for PettingZoo's environment, in the loop that mpe2 runs in."""
    gpu_zoo: Any = importlib.import_module("gpu_zoo")
    return _parallel("gpu_zoo drop-in", gpu_zoo.make(env_id, **(params or {})))


def plain_python(env_id: str, rules: Callable[..., Any], params: Mapping[str, Any]) -> Contender:
    """The same rules in plain Python, one environment, from starts that our kernel drew."""
    gpu_zoo: Any = importlib.import_module("gpu_zoo")
    env = gpu_zoo.make_vec(env_id, STARTS, numerics="reference", **params)
    env.reset(seed=0)
    drawn = env.get_state()
    starts = [{name: drawn[name][i] for name in env.spec.state} for i in range(STARTS)]
    limit = int(env.params[env.spec.time_limit])
    script = [
        {a: _draw(env.single_action_space(a), (1,), 100 * t + i)[0]
         for i, a in enumerate(env.agents)}
        for t in range(BATCHES)
    ]  # fmt: skip
    known = set(inspect.signature(rules).parameters)
    game = rules(**{name: value for name, value in env.params.items() if name in known})

    def run(quanta: int) -> None:
        for episode in range(quanta):
            game.reset(starts[episode % STARTS])
            playing = set(env.agents)
            for step in range(limit):
                if not playing:  # those that end sooner begin anew, so that all steps are counted
                    game.reset(starts[step % STARTS])
                    playing = set(env.agents)
                actions = script[step % BATCHES]
                _, _, ended = game.step({agent: actions[agent] for agent in playing})
                playing -= {agent for agent, out in ended.items() if out}

    method = (
        f"{rules.__module__}: one environment in one process, whole episodes of random actions "
        "from starts that gpu_zoo drew"
    )
    return Contender("plain Python", method, 1, len(env.agents), limit, run)


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


def _gymnasium(name: str, num_envs: int, device: str) -> Contender:
    env = importlib.import_module("gymnasium").make_vec(name, num_envs=num_envs)
    env.reset(seed=0)
    script = [_draw(env.single_action_space, (num_envs,), t) for t in range(BATCHES)]

    def run(quanta: int) -> None:
        for _ in range(quanta):
            for actions in script:
                env.step(actions)

    method = (
        "gymnasium.make_vec in its default mode: its own NumPy environment if there is one, else "
        "one environment after the other in this process; autoreset in the next step"
    )
    return Contender("Gymnasium", method, num_envs, 1, BATCHES, run, env.close)


Builder = Callable[[str, int, str], Contender]
PEERS: dict[str, Builder] = {
    "mpe2": _mpe2, "jaxmarl": _jaxmarl, "vmas": _vmas, "gymnasium": _gymnasium,
}  # fmt: skip
