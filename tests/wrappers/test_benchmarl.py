"""BenchMARL's face: what its tasks say of an environment, and that its experiments learn."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("benchmarl")

from benchmarl.algorithms import IppoConfig, IqlConfig, MaddpgConfig, MappoConfig, QmixConfig
from benchmarl.environments import PettingZooTask
from benchmarl.experiment import Callback, Experiment, ExperimentConfig
from benchmarl.models import MlpConfig
from masks.ferry import FERRY
from mpe2 import simple_spread_v3, simple_tag_v3
from torchrl.data import Categorical
from torchrl.envs import PettingZooWrapper, TransformedEnv

import gpu_zoo
from gpu_zoo.wrappers.benchmarl import GpuZooClass, GpuZooTask
from gpu_zoo.wrappers.torchrl import TorchRLEnv

# ruff: noqa: E402 (without the library there is nothing to import)


def test_a_task_for_each_environment() -> None:
    names = {gpu_zoo.spec(i).name.upper() for i in gpu_zoo.list_ids()}
    assert names - {task.name for task in GpuZooTask} == {"TAG_CONTINUOUS_V0"}
    for task in GpuZooTask:
        made = task.get_task(config={})
        assert isinstance(made, GpuZooClass)
        assert made.supports_continuous_actions() or made.supports_discrete_actions()


@pytest.mark.parametrize(
    ("name", "config", "discrete", "continuous"),
    [
        ("SIMPLE_TAG_V3", {}, True, True),
        ("SIMPLE_TAG_V3", {"continuous_actions": True}, False, True),
        ("SIMPLE_TAG_V3", {"continuous_actions": False}, True, False),
        ("CARTPOLE_V1", {}, True, False),
        ("PENDULUM_V1", {}, False, True),
    ],
)
def test_which_actions(name: str, config: Any, discrete: bool, continuous: bool) -> None:
    task = GpuZooTask[name].get_task(config=config)
    assert task.supports_discrete_actions() == discrete
    assert task.supports_continuous_actions() == continuous


@pytest.mark.parametrize("reference", [simple_spread_v3, simple_tag_v3])
@pytest.mark.parametrize("continuous", [False, True])
def test_specs_as_benchmarls_own_task_has_them(reference: Any, continuous: bool) -> None:
    """Of its PettingZoo task, over mpe2, of which it would not find the environments itself."""
    config = {"max_cycles": 7}
    name = reference.__name__.rsplit(".", 1)[-1].upper()
    ours = GpuZooTask[name].get_task(config=config)
    theirs = PettingZooTask[name[:-3]].get_task(config=config)
    batched = ours.get_env_fun(2, continuous_actions=continuous, seed=0, device="cpu")()
    single = PettingZooWrapper(
        reference.parallel_env(continuous_actions=continuous, **config), return_state=True
    )
    assert ours.max_steps(batched) == theirs.max_steps(single) == 7
    assert ours.group_map(batched) == theirs.group_map(single)
    for what in ("observation_spec", "action_spec", "state_spec"):
        got, wanted = getattr(ours, what)(batched), getattr(theirs, what)(single)
        leaves = set(wanted.keys(True, True))
        assert set(got.keys(True, True)) == leaves, what
        for key in leaves:
            assert (got[key].shape, got[key].dtype) == (wanted[key].shape, wanted[key].dtype), key
            assert isinstance(got[key], Categorical) == isinstance(wanted[key], Categorical)
    assert ours.action_mask_spec(batched) is ours.info_spec(batched) is None


def test_masks_of_actions(own_registry: None) -> None:
    gpu_zoo.register(FERRY)
    task = GpuZooClass("FERRY_V0", {})
    env = task.get_env_fun(num_envs=2, continuous_actions=False, seed=0, device="cpu")()
    assert list(task.action_mask_spec(env).keys(True, True)) == [("walker", "action_mask")]
    assert task.action_mask_spec(env)["walker", "action_mask"].shape == (2, 3)


def test_who_cannot_be_trained_on_is_an_error() -> None:
    with pytest.raises(ValueError, match="name='TAG_CONTINUOUS_V0': its agents leave one by one"):
        GpuZooClass("TAG_CONTINUOUS_V0", {})
    with pytest.raises(KeyError, match="did you mean mpe/simple_spread_v3"):
        GpuZooClass("SIMPLE_SPRED_V3", {})
    with pytest.raises(ValueError, match="max_cycles=0"):
        GpuZooTask.SIMPLE_SPREAD_V3.get_task(config={"max_cycles": 0})


def test_a_picture() -> None:
    pytest.importorskip("pygame")
    task = GpuZooTask.SIMPLE_SPREAD_V3.get_task(config={})
    env = task.get_env_fun(num_envs=2, continuous_actions=False, seed=0, device="cpu")()
    env.reset()
    picture = task.render_callback(None, env, None)
    assert task.has_render(env) and picture.dtype == torch.uint8 and picture.shape[-1] == 3


class Returns(Callback):
    """The mean return of the episodes that ended in each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def on_batch_collected(self, batch: Any) -> None:
        over = batch["next", "done"].squeeze(-1)
        self.seen.append(batch["next", "agent", "episode_reward"][over].mean().item())


def experiment(
    task: Any, algorithm: Any, folder: Path, callbacks: Any = None, **changed: Any
) -> Experiment:
    config = ExperimentConfig.get_from_yaml()
    config.loggers, config.render, config.create_json = [], False, False
    config.save_folder = str(folder)
    config.on_policy_n_envs_per_worker = config.off_policy_n_envs_per_worker = 32
    config.evaluation_interval = config.on_policy_collected_frames_per_batch = 32 * 25
    config.off_policy_collected_frames_per_batch = 32 * 25
    for name, value in changed.items():
        setattr(config, name, value)
    model = MlpConfig(
        num_cells=[64, 64], layer_class=torch.nn.Linear, activation_class=torch.nn.Tanh
    )
    return Experiment(
        task=task,
        algorithm_config=algorithm.get_from_yaml(),
        model_config=model,
        seed=0,
        config=config,
        callbacks=callbacks,
    )


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [
        ("SIMPLE_TAG_V3", MappoConfig),  # two groups
        ("SIMPLE_SPREAD_V3", QmixConfig),
        ("SIMPLE_SPREAD_V3", IqlConfig),
        ("SIMPLE_SPREAD_V3", MaddpgConfig),  # continuous
    ],
)
def test_its_algorithms_run(name: str, algorithm: Any, tmp_path: Path) -> None:
    task = GpuZooTask[name].get_task(config={"max_cycles": 25})
    run = experiment(
        task,
        algorithm,
        tmp_path,
        max_n_iters=2,
        on_policy_n_minibatch_iters=1,
        off_policy_n_optimizer_steps=2,
    )
    env = run.collector.env
    while isinstance(env, TransformedEnv):
        env = env.base_env
    assert isinstance(env, TorchRLEnv) and env.batch.num_envs == 32  # and no SerialEnv of many
    run.run()
    assert run.total_frames == 2 * 32 * 25
    assert pickle.loads(pickle.dumps(task)) == task


def test_an_experiment_learns(tmp_path: Path) -> None:
    run = experiment(
        GpuZooTask.CARTPOLE_V1.get_task(config={}),
        IppoConfig,
        tmp_path,
        max_n_iters=15,
        lr=3e-3,
        evaluation=False,
        on_policy_n_minibatch_iters=4,
        on_policy_minibatch_size=400,
        callbacks=[returns := Returns()],
    )
    run.run()
    assert returns.seen[0] < 30 and max(returns.seen[-3:]) > 80
