"""TorchRL's face: held to TorchRL's own checks, to its PettingZooEnv over mpe2, and to the rules of
an environment whose agents end one by one; and its PPO learns.
"""
# ruff: noqa: E402 (without the library there is nothing to import)

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import hazard
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchrl")

from masks.ferry import FERRY, MULTI
from mpe2 import simple_spread_v3, simple_tag_v3
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch.utils._python_dispatch import TorchDispatchMode
from torchrl.collectors import Collector, MultiSyncCollector
from torchrl.data import Bounded, Categorical, MultiCategorical, Unbounded
from torchrl.envs import ActionMask, PettingZooWrapper, RewardSum, StepCounter, TransformedEnv
from torchrl.envs.utils import check_env_specs
from torchrl.modules import ProbabilisticActor
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

import gpu_zoo
from gpu_zoo.errors import InvalidAction, ResetNeeded
from gpu_zoo.wrappers.torchrl import TorchRLEnv


@pytest.fixture
def hazards(own_registry: None) -> None:
    gpu_zoo.register(hazard.HAZARD)
    gpu_zoo.register(hazard.MASKED)


# Specs and layout --------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", gpu_zoo.list_ids())
def test_torchrls_own_check(env_id: str) -> None:
    check_env_specs(TorchRLEnv(env_id, 2, return_state=True))


@pytest.mark.parametrize("env_id", ["test/hazard_v0", "test/hazard_masked_v0"])
def test_torchrls_own_check_where_agents_leave(env_id: str, hazards: None) -> None:
    check_env_specs(TorchRLEnv(env_id, 2, max_cycles=2, first_end=1), break_when_any_done=False)


def action_spec(env: TorchRLEnv, group: str = "agent") -> Any:
    return env.full_action_spec[group, "action"]


def test_kinds_of_action(own_registry: None) -> None:
    spec = action_spec(TorchRLEnv("mpe/simple_spread_v3", 2))
    assert isinstance(spec, Categorical) and spec.n == 5 and spec.shape == (2, 3)
    spec = action_spec(TorchRLEnv("mpe/simple_spread_v3", 2, continuous_actions=True))
    assert isinstance(spec, Bounded) and spec.shape == (2, 3, 5) and spec.dtype == torch.float32
    assert (spec.space.low == 0).all() and (spec.space.high == 1).all()
    spec = action_spec(TorchRLEnv("warpdrive/tag_continuous_v0", 2), "runner")  # 11 of each
    assert isinstance(spec, Categorical) and spec.n == 11 and spec.shape == (2, 10, 2)
    gpu_zoo.register(FERRY)
    spec = action_spec(TorchRLEnv(FERRY.id, 3, SPACE=MULTI), "walker")  # 3 and 2
    assert isinstance(spec, MultiCategorical) and spec.shape == (3, 2, 2)


def test_kinds_of_observation() -> None:
    env = TorchRLEnv("mpe/simple_spread_v3", 2)
    assert isinstance(env.observation_spec["agent", "observation"], Unbounded)
    spec = TorchRLEnv("classic/pendulum_v1", 2).observation_spec["agent", "observation"]
    assert isinstance(spec, Bounded) and spec.space.high[1, 0].tolist() == [1, 1, 8]


@pytest.mark.parametrize("reference", [simple_spread_v3, simple_tag_v3])
def test_same_as_pettingzoo_env_over_mpe2(reference: Any) -> None:
    """Keys, dtypes, shapes and numbers, but for the axis of environments and TorchRL's default of
    ending with the first agent that is done.
    """
    theirs = PettingZooWrapper(
        reference.parallel_env(max_cycles=3), return_state=True, done_on_any=False
    )
    name = reference.__name__.rsplit(".", 1)[-1]
    ours = TorchRLEnv(f"mpe/{name}", 1, return_state=True, numerics="reference", max_cycles=3)
    assert ours.group_map == theirs.group_map
    data = [theirs.reset(seed=3), ours.reset(seed=3)]
    for _ in range(3):
        assert_equal(*data)
        action = theirs.full_action_spec.rand()
        data[0].update(action)
        data[1].update(action.unsqueeze(0))
        data = [theirs.step(data[0]), ours.step(data[1])]
        assert_equal(*data)
        data = [td["next"].exclude("reward") for td in data]
    assert data[1]["done"].all() and data[1]["truncated"].all() and not data[1]["terminated"].any()


def assert_equal(theirs: Any, ours: Any) -> None:
    keys = set(theirs.keys(True))
    assert set(ours.keys(True)) == keys
    for key in theirs.keys(True, True):
        wanted, got = theirs[key], ours[key]
        assert got.dtype == wanted.dtype and got.shape == (1, *wanted.shape), key
        assert torch.allclose(got[0].double(), wanted.double(), rtol=1e-6, atol=0), key
    for group in ("agent", "adversary"):
        if group in keys:
            assert ours[group].batch_size == (1, *theirs[group].batch_size)


def test_state_is_the_batchs() -> None:
    env = TorchRLEnv("mpe/simple_tag_v3", 3, return_state=True)
    assert torch.equal(env.reset()["state"], env.batch.state())


# Who ends when -----------------------------------------------------------------------------------

# Two environments whose agents end at different steps, so that they are reset at different times.
TWO: dict[str, list[dict[str, int]]] = {
    "staggered": [hazard.STAGGERED, {"first_end": 2, "second_end": 3, "max_cycles": 4}],
    "mixed": [hazard.MIXED, {**hazard.MIXED, "max_cycles": 3, "first_end": 3}],
    # In the second the last to terminate does so at the time limit.
    "terminated": [
        hazard.TERMINATED,
        {**hazard.TERMINATED, "first_end": 1, "third_end": 5, "max_cycles": 5},
    ],
}


def hazard_env(case: str, env_id: str = "test/hazard_v0", **kwargs: Any) -> TorchRLEnv:
    each = {
        name: np.array(
            [params.get(name, hazard.HAZARD.params[name].default) for params in TWO[case]]
        )
        for name in hazard.HAZARD.params
    }
    return TorchRLEnv(env_id, 2, **each, **kwargs)


def numbered(env: TorchRLEnv, frames: int) -> Any:
    """What a collector gathers under a policy that acts by the time that it observes."""

    def policy(td: Any) -> Any:
        time = td["agent", "observation"][..., 1].long()
        return td.set(("agent", "action"), time.clamp(min=0) % 3)

    collector = Collector(env, policy, frames_per_batch=2 * frames, total_frames=2 * frames)
    (data,) = list(collector)
    collector.shutdown()
    return data


@pytest.mark.parametrize("case", TWO)
def test_every_frame_is_what_the_rules_say(case: str, hazards: None) -> None:
    data = numbered(hazard_env(case), 33)
    for e, params in enumerate(TWO[case]):
        ends = hazard.ends(params)
        last = max(end for end, _, _ in ends)
        time, episode = 0, 1
        for t in range(33):
            now = data[e, t]
            for i, (end, terminates, truncates) in enumerate(ends):
                where = f"{case}: environment {e}, frame {t}, agent {i}"
                mine, later = now["agent"][i], now["next", "agent"][i]
                acts, over = time < end, time + 1 >= end
                assert mine["mask"] == acts, where
                assert later["mask"] == (not over), where
                action = time % 3
                if acts:
                    before = 0 if time == 0 else (time - 1) % 3
                    assert mine["observation"].tolist() == [i, time, episode, before], where
                    assert later["observation"].tolist() == [i, time + 1, episode, action], where
                    assert not mine["done"] and not mine["terminated"] and not mine["truncated"]
                    assert later["truncated"] == (over and truncates), where
                    assert mine["action"] == action, where
                else:
                    assert mine["done"] and mine["terminated"], where
                assert later["reward"] == (100 * i + time + 1 if acts else 0), where
                assert later["terminated"] == (over and terminates), where
                assert later["done"] == over, where
            time += 1
            done = time == last
            assert now["next", "done"] == done and not now["done"]
            assert now["next", "terminated"] == (done and all(ends[i][1] for i in range(3)))
            assert now["next", "truncated"] == (done and any(ends[i][2] for i in range(3)))
            if done:
                time, episode = 0, episode + 1


GAMMA, LAMBDA = 0.9, 0.8


def value_of(observation: Any) -> Any:
    """A critic to reckon with: of who is asked, when, and in which episode."""
    return observation @ torch.tensor([[7.0], [-2.0], [3.0], [0.5]])


def gae() -> GAE:
    critic = TensorDictModule(
        value_of, in_keys=[("agent", "observation")], out_keys=[("agent", "state_value")]
    )
    estimator = GAE(gamma=GAMMA, lmbda=LAMBDA, value_network=critic)
    names = ("reward", "done", "terminated")
    estimator.set_keys(
        value=("agent", "state_value"),
        advantage=("agent", "advantage"),
        value_target=("agent", "value_target"),
        **{name: ("agent", name) for name in names},
    )
    return estimator


@pytest.mark.parametrize("case", TWO)
def test_gae_bootstraps_where_an_agent_is_cut_off_and_only_there(case: str, hazards: None) -> None:
    frames = 33
    data = gae()(numbered(hazard_env(case), frames))
    mask = data["agent", "mask"]
    assert mask.sum() < mask.numel() or case == "mixed"
    for e, params in enumerate(TWO[case]):
        ends = hazard.ends(params)
        last = max(end for end, _, _ in ends)
        for i, (end, terminates, _) in enumerate(ends):
            wanted, following = {}, 0.0
            for t in reversed(range(frames)):
                time, episode = t % last, 1 + t // last
                if time >= end:
                    continue
                over = time + 1 == end
                was = value_of(torch.tensor([i, time, episode, max(time - 1, 0) % 3.0])).item()
                will = value_of(torch.tensor([i, time + 1, episode, time % 3.0])).item()
                bootstrap = 0.0 if over and terminates else GAMMA * will
                delta = 100 * i + time + 1 + bootstrap - was
                following = delta + (0.0 if over else GAMMA * LAMBDA * following)
                wanted[t] = following
            acts = mask[e, :, i]
            assert sorted(wanted) == acts.nonzero().flatten().tolist()
            got = data["agent", "advantage"][e, acts, i, 0]
            assert torch.allclose(got, torch.tensor([wanted[t] for t in sorted(wanted)]), rtol=1e-4)


@pytest.mark.parametrize("case", TWO)
def test_a_loss_over_those_who_act_does_not_see_the_others(case: str, hazards: None) -> None:
    torch.manual_seed(0)
    env = hazard_env(case)
    actor, loss = ppo(4, 3)
    collector = Collector(env, actor, frames_per_batch=60, total_frames=60)
    (data,) = list(collector)
    collector.shutdown()
    loss.value_estimator(data)
    mask = data["agent", "mask"]
    results = []
    for spoilt in (False, True):
        if spoilt:
            for name in ("observation", "advantage", "value_target"):
                data["agent", name][~mask] = 1e6
        flat = TensorDict({"agent": data["agent"][mask]}, [int(mask.sum())])
        found = loss(flat)
        # The first is 0 but for rounding, as advantages are normalised; the second is far from it.
        results.append([found[name].item() for name in ("loss_objective", "loss_critic")])
    assert results[0] == results[1]
    assert results[0][1] > 1


def test_a_step_is_one_of_all_environments(hazards: None) -> None:
    env = hazard_env("staggered")
    td = env.rand_action(env.reset())
    with pytest.raises(ValueError, match="_step: leaves out environments, expected all"):
        env.step(td.set("_step", torch.tensor([[True], [False]])))


def test_who_is_over_must_be_reset(hazards: None) -> None:
    env = hazard_env("staggered")
    td = env.rollout(4)[:, -1]
    with pytest.raises(ResetNeeded, match="environment 1 is over"):
        env.step(env.rand_action(td["next"].exclude("reward")))


# Resets and seeds --------------------------------------------------------------------------------


def test_a_partial_reset_starts_those_environments_only() -> None:
    env = TorchRLEnv("mpe/simple_spread_v3", 4, seed=0)
    env.reset()
    before = env.rand_step()["next"].exclude("reward")
    kept = before.clone()
    chosen = torch.tensor([[True], [False], [False], [True]])
    after = env.reset(before.set("_reset", chosen))
    steps = torch.as_tensor(env.batch.get_state()["steps"])
    assert steps.tolist() == [0, 1, 1, 0]
    same = (after["agent", "observation"] == kept["agent", "observation"]).flatten(1).all(1)
    assert same.tolist() == [False, True, True, False]


def test_nobody_to_reset() -> None:
    env = TorchRLEnv("mpe/simple_spread_v3", 2)
    td = env.reset()
    again = env.reset(td.clone().set("_reset", torch.zeros(2, 1, dtype=torch.bool)))
    assert torch.equal(again["agent", "observation"], td["agent", "observation"])


def test_seeds_are_the_batchs() -> None:
    batch = gpu_zoo.make_vec("mpe/simple_spread_v3", 3)
    batch.reset(seed=5)
    wanted = torch.as_tensor(batch.group["agent"].observations)
    seeded = TorchRLEnv("mpe/simple_spread_v3", 3)
    seeded.set_seed(5)
    later = TorchRLEnv("mpe/simple_spread_v3", 3)
    later.rollout(7)
    later.set_seed(5)
    for env in (seeded, later, TorchRLEnv("mpe/simple_spread_v3", 3, seed=5)):
        assert torch.equal(env.reset()["agent", "observation"], wanted)
        assert not torch.equal(env.reset()["agent", "observation"], wanted)
        assert torch.equal(env.reset(seed=5)["agent", "observation"], wanted)


# Memory ------------------------------------------------------------------------------------------


def test_what_a_collector_keeps_is_never_written_to_again(hazards: None) -> None:
    env = hazard_env("staggered", return_state=True)
    td, kept = env.reset(), []
    for _ in range(3):
        now, td = env.step_and_maybe_reset(env.rand_action(td))
        kept.append((now, now.clone()))
    for now, then in kept:
        assert (now == then).all()


@contextmanager
def copies() -> Iterator[list[tuple[int, int]]]:
    """Of every tensor that is copied within it: from which address to which."""
    seen: list[tuple[int, int]] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            if func in (torch.ops.aten.clone.default, torch.ops.aten._to_copy.default):
                seen.append((args[0].data_ptr(), result.data_ptr()))
            elif func == torch.ops.aten.copy_.default:
                seen.append((args[1].data_ptr(), args[0].data_ptr()))
            return result

    with Watch():
        yield seen


def test_one_copy_of_an_array_a_step() -> None:
    """From the kernel's memory to the collector's, and from the policy's to the kernel's."""
    env = TorchRLEnv("mpe/simple_spread_v3", 64)
    td = env.rand_action(env.reset())
    group = env.batch.group["agent"]
    with copies() as seen:
        after = env._step(td)["agent"]
    wanted = [(td["agent", "action"], group.actions), (group.observations, after["observation"])]
    wanted += [(group.rewards, after["reward"]), (group.terminations, after["terminated"])]
    wanted += [(group.truncations, after["truncated"])]
    assert sorted(seen) == sorted((old.data_ptr(), new.data_ptr()) for old, new in wanted)


def test_the_kernel_has_no_part_in_a_gradient() -> None:
    env = TorchRLEnv("classic/pendulum_v1", 2)
    td = env.reset()
    td["agent", "action"] = torch.zeros(2, 1, 1, requires_grad=True) * 2
    env.step(td)
    assert not env.batch.group["agent"].actions.requires_grad


# Bad input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (torch.zeros(2, 3), r"\('agent', 'action'\): torch.float32 \(2, 3\), expected torch.int64"),
        (torch.zeros(2, 1, dtype=torch.int64), r"torch.int64 \(2, 1\), expected .* \(2, 3\)"),
        (torch.full((2, 3), 5), r"actions\['agent_0'\]\[0\]: 5, expected"),
        (torch.full((2, 3), 2**32), r"\('agent', 'action'\): 4294967296, expected"),
    ],
)
def test_a_bad_action_is_an_error_and_nothing_moves(action: Any, message: str) -> None:
    env = TorchRLEnv("mpe/simple_spread_v3", 2)
    td = env.reset()
    td["agent"].batch_size = [2]  # or it would not take an action of another shape
    td["agent", "action"] = action
    before = env.batch.get_state()["steps"].clone()
    with pytest.raises(InvalidAction, match=message):
        env.step(td)
    assert torch.equal(env.batch.get_state()["steps"], before)


def test_other_bad_input() -> None:
    env = TorchRLEnv("mpe/simple_spread_v3", 2)
    with pytest.raises(ValueError, match="device='meta': the environments live on cpu"):
        env.to("meta")
    assert env.to("cpu") is env
    per_agent = env.reset().set(("agent", "_reset"), torch.ones(2, 3, 1, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"\('agent', '_reset'\): expected '_reset' at the root"):
        env.reset(per_agent)
    env.close()
    with pytest.raises(gpu_zoo.errors.ClosedEnvironmentError):
        env.reset()


# With the rest of TorchRL ------------------------------------------------------------------------


def allowed(data: Any) -> bool:
    action = data["agent", "action"].unsqueeze(-1)
    return bool(data["agent", "action_mask"].gather(-1, action).all())


def test_random_actions_are_allowed_ones(hazards: None) -> None:
    env = hazard_env("staggered", "test/hazard_masked_v0")
    assert allowed(env.rollout(30, break_when_any_done=False))
    gpu_zoo.register(FERRY)
    data = TorchRLEnv(FERRY.id, 4, SPACE=MULTI).rollout(12, break_when_any_done=False)
    chosen = torch.nn.functional.one_hot(data["walker", "action"], 3).bool()
    components = data["walker", "action_mask"].split([3, 2], -1)
    assert (components[0] | ~chosen[..., 0, :]).all()
    assert (components[1] | ~chosen[..., 1, :2]).all()
    masked = TransformedEnv(
        hazard_env("staggered", "test/hazard_masked_v0"),
        ActionMask(("agent", "action"), ("agent", "action_mask")),
    )
    collector = Collector(masked, masked.rand_action, frames_per_batch=60, total_frames=60)
    (data,) = list(collector)
    collector.shutdown()
    assert allowed(data) and (data["agent", "action"] == 2).any()


def test_transforms_count_and_add_up() -> None:
    env = TransformedEnv(
        TorchRLEnv("mpe/simple_tag_v3", 3, max_cycles=4),
        RewardSum(reset_keys=["_reset", "_reset"]),
    )
    env.append_transform(StepCounter())
    data = env.rollout(8, break_when_any_done=False)
    for group in ("adversary", "agent"):
        rewards = data["next", group, "reward"]
        sums = torch.cat([rewards[:, :4].cumsum(1), rewards[:, 4:].cumsum(1)], 1)
        assert torch.allclose(data["next", group, "episode_reward"], sums)
    assert data["next", "step_count"][0].flatten().tolist() == [1, 2, 3, 4] * 2


def test_a_collector_of_several_processes() -> None:
    """Made from a function, in processes of their own, each with its seeds."""
    make = partial(TorchRLEnv, "mpe/simple_v3", 4)
    collector = MultiSyncCollector([make, make], None, frames_per_batch=80, total_frames=80)
    try:
        collector.set_seed(1)
        (data,) = list(collector)
    finally:
        collector.shutdown()
    assert data.numel() == 80
    starts = data["agent", "observation"].reshape(8, -1)
    assert len({tuple(row.tolist()) for row in starts}) == 8


# Learning ----------------------------------------------------------------------------------------


def ppo(observes: int, actions: int) -> tuple[Any, ClipPPOLoss]:
    """An actor and TorchRL's loss over one group, whose agents share their networks."""

    def network(outputs: int) -> Any:
        return torch.nn.Sequential(
            torch.nn.Linear(observes, 64),
            torch.nn.Tanh(),
            torch.nn.Linear(64, 64),
            torch.nn.Tanh(),
            torch.nn.Linear(64, outputs),
        )

    observation = [("agent", "observation")]
    logits = TensorDictModule(network(actions), observation, [("agent", "logits")])
    actor = ProbabilisticActor(
        TensorDictSequential(logits),
        in_keys=[("agent", "logits")],
        out_keys=[("agent", "action")],
        distribution_class=torch.distributions.Categorical,
        return_log_prob=True,
        log_prob_key=("agent", "action_log_prob"),
    )
    critic = TensorDictModule(network(1), observation, [("agent", "state_value")])
    loss = ClipPPOLoss(actor, critic, entropy_coeff=0.01, normalize_advantage=True)
    names = ("action", "advantage", "value_target", "reward", "done", "terminated")
    loss.set_keys(
        sample_log_prob=("agent", "action_log_prob"),
        value=("agent", "state_value"),
        **{name: ("agent", name) for name in names},
    )
    loss.make_value_estimator(gamma=0.99, lmbda=0.95)
    return actor, loss


def train(env: Any, actor: Any, loss: ClipPPOLoss, iterations: int, steps: int) -> list[float]:
    """Train, and return the mean return of the episodes that ended, by iteration."""
    frames = steps * env.batch_size[0]
    collector = Collector(env, actor, frames_per_batch=frames, total_frames=frames * iterations)
    optimizer = torch.optim.Adam(loss.parameters(), lr=3e-3)
    returns = []
    for data in collector:
        with torch.no_grad():
            loss.value_estimator(data)
        done = data["next", "done"].squeeze(-1)
        returns.append(data["next", "agent", "episode_reward"][done].mean().item())
        rows = data.reshape(-1)
        for _ in range(4):
            for part in torch.randperm(frames).split(frames // 4):
                losses = loss(rows[part])
                names = ("loss_objective", "loss_critic", "loss_entropy")
                optimizer.zero_grad()
                sum(losses[name] for name in names).backward()
                torch.nn.utils.clip_grad_norm_(loss.parameters(), 0.5)
                optimizer.step()
    collector.shutdown()
    return returns


def summed(env: TorchRLEnv) -> TransformedEnv:
    return TransformedEnv(env, RewardSum(reset_keys=["_reset"] * len(env.group_map)))


def test_ppo_learns_to_balance() -> None:
    torch.manual_seed(0)
    env = summed(TorchRLEnv("classic/cartpole_v1", 32, seed=0))
    returns = train(env, *ppo(4, 2), iterations=25, steps=32)
    assert returns[0] < 30 and np.mean(returns[-5:]) > 120


@pytest.mark.slow
def test_ppo_learns_to_spread() -> None:
    torch.manual_seed(0)
    env = summed(TorchRLEnv("mpe/simple_spread_v3", 64, seed=0))
    returns = train(env, *ppo(18, 5), iterations=60, steps=50)
    assert np.mean(returns[-10:]) > np.mean(returns[:2]) + 5  # at random it is -26
