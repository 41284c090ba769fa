"""TorchRL's ClipPPOLoss on simple_spread: over its PettingZooWrapper in a SerialEnv, and on ours.

Same networks, loss, hyper-parameters and frames an iteration; 16 environments in the SerialEnv,
which steps them one after the other, and 256 on ours.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

USUAL_ENVS, OUR_ENVS, FRAMES, MINIBATCH, EPOCHS = 16, 256, 6400, 400, 4
OBSERVES, ACTIONS = 18, 5


def _learner() -> tuple[Any, Any]:
    """An actor that all agents share, and the loss with its critic."""
    import torch
    from tensordict.nn import TensorDictModule
    from torchrl.modules import MLP, ProbabilisticActor
    from torchrl.objectives import ClipPPOLoss

    def network(key: str, size: int) -> Any:
        layers = MLP(OBSERVES, size, num_cells=[64, 64], activation_class=torch.nn.Tanh)
        return TensorDictModule(layers, [("agent", "observation")], [("agent", key)])

    actor = ProbabilisticActor(
        network("logits", ACTIONS),
        in_keys=[("agent", "logits")],
        out_keys=[("agent", "action")],
        distribution_class=torch.distributions.Categorical,
        return_log_prob=True,
        log_prob_key=("agent", "action_log_prob"),
    )
    loss = ClipPPOLoss(actor, network("state_value", 1), entropy_coeff=0.0)
    names = ("action", "advantage", "value_target", "reward", "done", "terminated")
    loss.set_keys(
        sample_log_prob=("agent", "action_log_prob"),
        value=("agent", "state_value"),
        **{name: ("agent", name) for name in names},
    )
    loss.make_value_estimator(gamma=0.95, lmbda=0.95)
    return actor, loss


def _update(loss: Any, optimizer: Any, data: Any) -> None:
    import torch

    with torch.no_grad():
        loss.value_estimator(data)
    rows = data.reshape(-1)
    for _ in range(EPOCHS):
        for part in torch.randperm(FRAMES).split(MINIBATCH):
            losses = loss(rows[part])
            optimizer.zero_grad()
            (losses["loss_objective"] + losses["loss_critic"]).backward()
            torch.nn.utils.clip_grad_norm_(loss.parameters(), 0.5)
            optimizer.step()


def _train(env: Any, seconds: float, learn: bool) -> float:
    """Environment steps a second of whole iterations, after one that is not timed.

    Without learning, what is collected is thrown away, and the policy stays.
    """
    import torch
    from torchrl.collectors import Collector

    actor, loss = _learner()
    optimizer = torch.optim.Adam(loss.parameters(), lr=2e-3)
    collector = Collector(env, actor, frames_per_batch=FRAMES, total_frames=-1)
    begun = collecting = 0.0
    done = -FRAMES
    since = time.perf_counter()
    for data in collector:
        collecting += time.perf_counter() - since
        if learn:
            _update(loss, optimizer, data)
        done += FRAMES
        since = time.perf_counter()
        if done == 0:
            begun, collecting = since, 0.0
        elif since - begun >= seconds:
            break
    collector.shutdown()
    print(f"collecting took {collecting / (since - begun):.0%} of the time")
    return done / (since - begun)


def usual(seconds: float, learn: bool = True) -> float:
    """In TorchRL's own way with PettingZoo's environments."""
    from mpe2 import simple_spread_v3
    from torchrl.envs import PettingZooWrapper, SerialEnv

    warnings.filterwarnings("ignore", message="PettingZoo in TorchRL is tested")
    many = SerialEnv(USUAL_ENVS, lambda: PettingZooWrapper(simple_spread_v3.parallel_env()))
    return _train(many, seconds, learn)


def ours(seconds: float, learn: bool = True) -> float:
    """On a batch."""
    from gpu_zoo.wrappers.torchrl import TorchRLEnv

    return _train(TorchRLEnv("mpe/simple_spread_v3", OUR_ENVS), seconds, learn)
