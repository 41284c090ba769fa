"""Our PPO against Stable-Baselines3's: same game, same network, same number of environment steps.

    python tests/baselines/compare_sb3.py                      # both, with our hyper-parameters
    python tests/baselines/compare_sb3.py --sb3-hyper defaults # SB3 with its own
    python tests/baselines/compare_sb3.py --steps 200000 --skip-sb3

Both are then measured on the same episodes, and our policy also plays in mpe2's own parallel_env.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv

import gpu_zoo
from gpu_zoo.baselines.networks import ActorCritic
from gpu_zoo.baselines.ppo import Policy, Score, default_config, evaluate, train

ENV_ID = "mpe/simple_spread_v3"
GROUP = "agent"


class Lanes(VecEnv):
    """Every agent of every environment as one of SB3's environments."""

    def __init__(self, num_envs: int, seed: int) -> None:
        self.env = gpu_zoo.make_vec(ENV_ID, num_envs)
        self.buffers = self.env.group[GROUP]
        self.agents = len(self.buffers.agents)
        self.render_mode = None
        super().__init__(
            num_envs * self.agents, self.buffers.observation_space, self.buffers.action_space
        )
        self.env.reset(seed=seed)
        # As our trainer does, for the same data: episodes do not all end at once.
        limit = int(self.env.params["max_cycles"] or 1)
        steps = np.arange(num_envs, dtype=np.int32) * limit // num_envs
        self.env.set_state({"steps": steps})

    def reset(self) -> npt.NDArray[np.float32]:
        return self._rows(self.buffers.observations)

    def step_async(self, actions: npt.NDArray[Any]) -> None:
        self.buffers.actions[...] = actions.reshape(self.buffers.actions.shape)

    def step_wait(self) -> Any:
        self.env.step()
        b = self.buffers
        dones = self._rows(b.terminations | b.truncations)
        infos: list[dict[str, Any]] = [{}] * self.num_envs
        final, terminated = self._rows(b.final_observations), self._rows(b.terminations)
        for lane in np.flatnonzero(dones):
            infos[lane] = {
                "terminal_observation": final[lane],
                "TimeLimit.truncated": not terminated[lane],
            }
        return self._rows(b.observations), self._rows(b.rewards), dones, infos

    def _rows(self, array: Any) -> Any:
        return array.reshape(self.num_envs, *array.shape[2:]).copy()

    def close(self) -> None:
        self.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self, attr_name)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


def sb3_policy(model: PPO) -> Policy:
    """SB3's weights as one of our policies."""
    spec = gpu_zoo.spec(ENV_ID).layout(gpu_zoo.spec(ENV_ID).resolve({}))[0]
    network = ActorCritic(spec.obs_size, spec.actions.space(), (64, 64), torch.Generator())
    theirs = model.policy.state_dict()
    names = {
        "actor.0": "mlp_extractor.policy_net.0", "actor.2": "mlp_extractor.policy_net.2",
        "actor.4": "action_net", "critic.0": "mlp_extractor.value_net.0",
        "critic.2": "mlp_extractor.value_net.2", "critic.4": "value_net",
    }  # fmt: skip
    network.load_state_dict(
        {f"{o}.{p}": theirs[f"{t}.{p}"] for o, t in names.items() for p in ("weight", "bias")}
    )
    return Policy(ENV_ID, {}, {GROUP: network})


def train_sb3(steps: int, seed: int, hyper: str, num_envs: int | None) -> tuple[Policy, float]:
    """SB3's PPO for ``steps`` environment steps; the policy and the seconds it took."""
    config = default_config(ENV_ID)
    num_envs = num_envs or (config.num_envs if hyper == "ours" else 16)
    lanes = Lanes(num_envs, seed * num_envs)
    chosen: dict[str, Any] = {}
    if hyper == "ours":
        rate = config.learning_rate
        chosen = {
            "learning_rate": (lambda left: left * rate) if config.anneal else rate,
            "n_steps": config.horizon,
            "batch_size": lanes.num_envs * config.horizon // config.minibatches,
            "n_epochs": config.epochs,
            "gamma": config.gamma,
            "gae_lambda": config.gae_lambda,
            "clip_range": config.clip,
            "clip_range_vf": config.value_clip,
            "ent_coef": config.entropy_coef,
            "vf_coef": config.value_coef,
            "max_grad_norm": config.max_grad_norm,
        }
    net = {"pi": [64, 64], "vf": [64, 64]}
    model = PPO(
        "MlpPolicy", lanes, seed=seed, device="cpu", policy_kwargs={"net_arch": net}, **chosen
    )
    begun = time.perf_counter()
    model.learn(steps * lanes.agents)
    return sb3_policy(model), time.perf_counter() - begun


def play_mpe2(policy: Policy, episodes: int, seed: int, deterministic: bool) -> Score:
    """Episode returns of a policy in mpe2's own environment; episode i is seeded ``seed + i``."""
    from mpe2 import simple_spread_v3

    env = simple_spread_v3.parallel_env()
    returns = []
    for episode in range(episodes):
        observations, _ = env.reset(seed=seed + episode)
        total = 0.0
        while env.agents:
            observations, rewards, _, _, _ = env.step(policy.act(observations, deterministic))
            total += sum(rewards.values()) / len(rewards)
        returns.append(total)
    env.close()
    return Score.of(torch.tensor(returns, dtype=torch.float64))


def report_mpe2(policy: Policy, episodes: int, seed: int) -> None:
    """The proof that ours is the same game: returns in mpe2, and the very same episodes in both."""
    there = play_mpe2(policy, episodes, seed, deterministic=False)
    print(f"{'  the same, played in mpe2':28s}{interval(there)}")
    here = evaluate(policy, ENV_ID, episodes, device="cpu").groups[GROUP]
    error = 1.96 * math.hypot(here.stderr, there.stderr)
    print(f"  difference {there.mean - here.mean:.3f}, which is 0 up to {error:.3f} (95 %)")
    # Reference numerics draw the same episodes from the same seeds.
    paired = min(episodes, 200)
    there = play_mpe2(policy, paired, seed, deterministic=True)
    here = evaluate(
        policy, ENV_ID, paired, env_params={"numerics": "reference"}, device="cpu",
        deterministic=True, seed=seed,
    ).groups[GROUP]  # fmt: skip
    print(f"  {paired} equal seeds: mpe2 {there.mean:.9f}, ours {here.mean:.9f}", flush=True)


def interval(score: Score) -> str:
    """Mean and 95 % interval."""
    half = 1.96 * score.stderr
    return f"{score.mean:8.3f}  [{score.mean - half:.3f}, {score.mean + half:.3f}]"


def main() -> None:
    """Train, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=default_config(ENV_ID).total_steps)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--sb3-hyper", choices=("ours", "defaults"), default="ours")
    parser.add_argument("--sb3-envs", type=int, default=None, help="environments SB3 steps at once")
    parser.add_argument("--skip-ours", action="store_true")
    parser.add_argument("--skip-sb3", action="store_true")
    args = parser.parse_args()

    def report(name: str, policy: Policy | None, seconds: float) -> None:
        score = evaluate(policy, ENV_ID, args.episodes, device="cpu").groups[GROUP]
        speed = f"{seconds:6.0f} s  {args.steps / seconds:8,.0f} steps/s" if seconds else ""
        print(f"{name:28s}{interval(score)}  {speed}", flush=True)

    print(f"{ENV_ID}: {args.steps:,} environment steps, {args.episodes} episodes, 95 % intervals")
    report("random", None, 0.0)
    if not args.skip_ours:
        config = default_config(
            ENV_ID, total_steps=args.steps, seed=args.seed, device="cpu", progress=False
        )
        begun = time.perf_counter()
        ours = train(ENV_ID, config).policy
        report("gpu_zoo PPO", ours, time.perf_counter() - begun)
        report_mpe2(ours, args.episodes, seed=10**6 * (1 + args.seed))
    if not args.skip_sb3:
        policy, seconds = train_sb3(args.steps, args.seed, args.sb3_hyper, args.sb3_envs)
        report(f"SB3 PPO ({args.sb3_hyper})", policy, seconds)


if __name__ == "__main__":
    main()
