"""IPPO in JAX on JaxMARL's own MPE_simple_spread_v3, the way JaxMARL trains.

An iteration is one compiled function: a scan over the steps of all environments with all agents as
one batch, advantages in a scan backwards, then scans over epochs and minibatches. It runs in an
interpreter that has JAX, and needs nothing of gpu_zoo.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import jaxmarl
import optax

from .setting import Contender, Note, Setting


def make(setting: Setting) -> Contender:
    """All three modes, compiled ahead; ``facts`` has the seconds that took."""
    learner = Learner(setting)
    key = jax.random.PRNGKey(setting.seed)
    shape = (setting.horizon, setting.agents, setting.num_envs)
    script = jax.random.randint(jax.random.PRNGKey(1), shape, 0, setting.actions)
    rate = jnp.float32(setting.learning_rate)
    compiled: dict[str, Any] = {}
    seconds: dict[str, float] = {}

    def compile_ahead(name: str, function: Callable[..., Any], *arguments: Any) -> None:
        begun = time.perf_counter()
        compiled[name] = jax.jit(function).lower(*arguments).compile()
        seconds[name] = time.perf_counter() - begun

    compile_ahead("start", learner.start, key)
    state = compiled["start"](key)
    compile_ahead("environment", learner.play, state.games, script)
    compile_ahead("acting", learner.rollout, state)
    compile_ahead("training", learner.iterate, state, rate)
    held = {"environment": state.games, "training": state}

    def play() -> None:
        held["environment"] = jax.block_until_ready(
            compiled["environment"](held["environment"], script)
        )

    def act() -> None:
        jax.block_until_ready(compiled["acting"](held["training"]))

    def train() -> None:
        held["training"], _ = jax.block_until_ready(compiled["training"](held["training"], rate))

    def learn(note: Note) -> None:
        updates = math.ceil(setting.total_steps / setting.env_steps)
        new = compiled["start"](key)
        for update in range(updates):
            share = jnp.float32(setting.learning_rate * (1 - update / updates))
            new, mean_return = compiled["training"](new, share)
            note((update + 1) * setting.env_steps, float(mean_return))

    steps = setting.env_steps
    return Contender(
        f"IPPO in JAX on {jax.devices()[0].platform}, an iteration jitted: {setting.num_envs} "
        f"environments x {setting.horizon} steps of jaxmarl's MPE_simple_spread_v3; XLA's own "
        "threads; compilation not counted",
        {"environment": (steps, play), "acting": (steps, act), "training": (steps, train)},
        learn,
        {"seconds to compile": seconds},
    )


class Tower(nn.Module):
    """Two tanh layers and a linear one."""

    hidden: int
    outputs: int
    gain: float

    @nn.compact
    def __call__(self, x: Any) -> Any:
        for _ in range(2):
            x = nn.tanh(nn.Dense(self.hidden, kernel_init=nn.initializers.orthogonal(2**0.5))(x))
        return nn.Dense(self.outputs, kernel_init=nn.initializers.orthogonal(self.gain))(x)


class Games(NamedTuple):
    """All environments between two steps."""

    state: Any
    seen: Any  # (agents * environments, observation)
    rewards: Any  # (agents * environments,)
    ended: Any
    key: Any


class Step(NamedTuple):
    """What is kept of a step, or of many; a sample a row."""

    seen: Any
    actions: Any
    log_probs: Any
    values: Any
    rewards: Any
    ended: Any


class State(NamedTuple):
    """All that an iteration changes."""

    weights: Any
    optimizer: Any
    games: Games


class Learner:
    """Functions to be compiled."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        # Its episodes last a step longer than this number says.
        self.env = jaxmarl.make("MPE_simple_spread_v3", max_steps=setting.horizon - 1)
        self.actor = Tower(setting.hidden, setting.actions, 0.01)
        self.critic = Tower(setting.hidden, 1, 1.0)
        self.optimizer = optax.chain(
            optax.clip_by_global_norm(setting.max_grad_norm),
            optax.scale_by_adam(eps=setting.adam_eps),
        )

    def start(self, key: Any) -> State:
        """New weights and new episodes."""
        setting = self.setting
        key, actor, critic, games = jax.random.split(key, 4)
        seen = jnp.zeros((1, setting.obs_size))
        weights = (self.actor.init(actor, seen), self.critic.init(critic, seen))
        keys = jax.random.split(games, setting.num_envs)
        observations, state = jax.vmap(self.env.reset)(keys)
        lanes = setting.num_envs * setting.agents
        nothing = jnp.zeros(lanes), jnp.zeros(lanes, bool)
        return State(
            weights,
            self.optimizer.init(weights),
            Games(state, self.rows(observations), *nothing, key),
        )

    def rows(self, by_agent: dict[str, Any]) -> Any:
        """Agents' arrays under each other."""
        return jnp.concatenate([by_agent[agent] for agent in self.env.agents])

    def value(self, weights: Any, seen: Any) -> Any:
        """Expected returns ``(...)``."""
        return self.critic.apply(weights[1], seen).squeeze(-1)

    def step(self, games: Games, actions: Any) -> Games:
        """One step of all environments; actions ``(agents, environments)``."""
        key, now = jax.random.split(games.key)
        keys = jax.random.split(now, self.setting.num_envs)
        chosen = dict(zip(self.env.agents, actions, strict=True))
        seen, state, rewards, ended, _ = jax.vmap(self.env.step)(keys, games.state, chosen)
        return Games(state, self.rows(seen), self.rows(rewards), self.rows(ended), key)

    def play(self, games: Games, script: Any) -> Games:
        """An episode with these actions."""
        return jax.lax.scan(lambda g, actions: (self.step(g, actions), None), games, script)[0]

    def rollout(self, state: State) -> tuple[Games, Step, Any]:
        """Play and keep; the steps ``(horizon, lanes, ...)`` and their advantages."""
        setting, weights = self.setting, state.weights

        def once(games: Games, _: None) -> tuple[Games, Step]:
            key, now = jax.random.split(games.key)
            log_odds = jax.nn.log_softmax(self.actor.apply(weights[0], games.seen))
            actions = jax.random.categorical(now, log_odds)
            log_probs = jnp.take_along_axis(log_odds, actions[:, None], 1).squeeze(1)
            values = self.value(weights, games.seen)
            after = self.step(
                games._replace(key=key), actions.reshape(setting.agents, setting.num_envs)
            )
            return after, Step(games.seen, actions, log_probs, values, after.rewards, after.ended)

        games, steps = jax.lax.scan(once, state.games, None, setting.horizon)
        last = self.value(weights, games.seen)
        return games, steps, estimate(steps, last, setting)

    def iterate(self, state: State, rate: Any) -> tuple[State, Any]:
        """A rollout and all gradient steps on it; the mean return of its episodes."""
        setting = self.setting
        games, steps, advantages = self.rollout(state)
        samples = jax.tree.map(
            lambda x: x.reshape(setting.samples, *x.shape[2:]),
            (steps, advantages, advantages + steps.values),
        )
        key, *shuffles = jax.random.split(games.key, 1 + setting.epochs)

        def descend(learned: Any, minibatch: Any) -> tuple[Any, None]:
            weights, optimizer = learned
            gradient = jax.grad(self.loss)(weights, *minibatch)
            change, optimizer = self.optimizer.update(gradient, optimizer)
            return (jax.tree.map(lambda w, c: w - rate * c, weights, change), optimizer), None

        def epoch(learned: Any, shuffle: Any) -> tuple[Any, None]:
            order = jax.random.permutation(shuffle, setting.samples)
            minibatches = jax.tree.map(
                lambda x: x[order].reshape(setting.minibatches, -1, *x.shape[1:]), samples
            )
            return jax.lax.scan(descend, learned, minibatches)[0], None

        learned = (state.weights, state.optimizer)
        (weights, optimizer), _ = jax.lax.scan(epoch, learned, jnp.stack(shuffles))
        return State(weights, optimizer, games._replace(key=key)), steps.rewards.sum(0).mean()

    def loss(self, weights: Any, steps: Step, advantages: Any, returns: Any) -> Any:
        """PPO's."""
        setting = self.setting
        log_odds = jax.nn.log_softmax(self.actor.apply(weights[0], steps.seen))
        log_probs = jnp.take_along_axis(log_odds, steps.actions[:, None], 1).squeeze(1)
        ratio = jnp.exp(log_probs - steps.log_probs)
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        clipped = jnp.clip(ratio, 1 - setting.clip, 1 + setting.clip)
        gain = jnp.minimum(ratio * advantages, clipped * advantages).mean()
        error = jnp.square(self.value(weights, steps.seen) - returns).mean()
        entropy = -(jnp.exp(log_odds) * log_odds).sum(-1).mean()
        return setting.value_coef * error - gain - setting.entropy_coef * entropy


def estimate(steps: Step, last: Any, setting: Setting) -> Any:
    """Generalised advantages ``(T, lanes)``; an episode's last step is followed by nothing."""

    def back(carry: Any, step: Step) -> Any:
        flowing, follows = carry
        left = 1 - step.ended
        error = step.rewards + setting.gamma * follows * left - step.values
        flowing = error + setting.gamma * setting.gae_lambda * left * flowing
        return (flowing, step.values), flowing

    return jax.lax.scan(back, (jnp.zeros_like(last), last), steps, reverse=True)[1]
