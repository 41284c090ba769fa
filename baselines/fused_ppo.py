"""What PPO computes most, on the CPU, in one call each: see kernels/learn/ppo.cpp.

The definitions are :meth:`ActorCritic.act <gpu_zoo.baselines.networks.ActorCritic.act>` and
:func:`gpu_zoo.baselines.learner.loss`. Those are used wherever these cannot be: on a GPU, with a
memory, with wide layers.
"""

from __future__ import annotations

import ctypes
import math
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from gpu_zoo.backends.cpu import pool
from gpu_zoo.baselines import fused
from gpu_zoo.baselines.config import PPOConfig
from gpu_zoo.baselines.fused import Perceptron
from gpu_zoo.baselines.networks import (
    ActorCritic,
    CategoricalHead,
    GaussianHead,
    MultiCategoricalHead,
)

if TYPE_CHECKING:
    from gpu_zoo.baselines.learner import Batch

METRICS = 5
SAMPLES = ("observations", "actions", "log_probs", "values", "advantages", "returns", "weights")


class Act(ctypes.Structure):
    """As in ppo.cpp."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in (
        "observations", "mean", "scale", "middle", "parameters", "noise", "masks", "actions",
        "log_probs",
    ))  # fmt: skip


class Call(ctypes.Structure):
    """As in ppo.cpp."""

    _fields_ = (
        ("chosen", ctypes.c_void_p),
        ("agents", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in (
            *SAMPLES, "states", "masks", "mean", "scale", "middle", "parameters", "gradient",
            "metrics",
        )),
        ("rows_a_part", ctypes.c_int64),
        *((name, ctypes.c_float) for name in (
            "clip", "value_clip", "entropy_coef", "value_coef",
        )),
    )  # fmt: skip


@cache
def library(actor: str, critic: str, head: str) -> ctypes.CDLL:
    """The compiled functions for networks of these shapes."""
    return ctypes.CDLL(
        str(fused.build("ppo", f"#define ACTOR {actor}\n#define CRITIC {critic}\n{head}"))
    )


def fuse(network: ActorCritic, whole: nn.Parameter) -> FusedNetwork | None:
    """These functions for a network; None where there are none for it."""
    actor, critic = network.actor, network.critic
    if network.labels > 0:
        return None
    if not isinstance(actor, Perceptron) or not isinstance(critic, Perceptron):
        return None
    if actor.in_bfloat16:
        return None
    if whole.device.type != "cpu" or max(*actor.widths, *critic.widths) > fused.WIDEST:
        return None
    return FusedNetwork(network, actor, critic, whole)


class FusedNetwork:
    """Actions of a network, and gradients of PPO's loss.

    Args:
        network: what learns.
        actor: its policy.
        critic: its value function.
        whole: all its parameters, see :func:`gpu_zoo.baselines.flat.flatten`. Their gradient is
            what :meth:`gradient` writes.
    """

    def __init__(
        self, network: ActorCritic, actor: Perceptron, critic: Perceptron, whole: nn.Parameter
    ) -> None:
        self.network, self.whole, self.head = network, whole, network.head
        self.middle: Tensor | None = None
        if isinstance(self.head, GaussianHead):
            self.middle = ((self.head.low + self.head.high) / 2).contiguous()
        shapes = [fused.net(part.widths, part.activation) for part in (actor, critic)]
        self.library = library(*shapes, _definitions(self.head))
        self.act_task = ctypes.cast(self.library.ppo_act, ctypes.c_void_p)
        self.part_task = ctypes.cast(self.library.ppo_part, ctypes.c_void_p)

    def act(
        self, observations: Tensor, generator: torch.Generator, masks: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """A sampled action and its log-probability for observations ``(..., obs_size)``.

        Masks, where actions are masked, are contiguous.

        The noise is what ActorCritic.act draws, so they agree, up to rounding.
        """
        head, lanes = self.head, observations.shape[:-1]
        if isinstance(head, GaussianHead):
            noise = observations.new_empty(*lanes, head.outputs).normal_(generator=generator)
        else:
            parts = [observations.new_empty(*lanes, count) for count in _counts(head)]
            noise = torch.cat([part.exponential_(generator=generator) for part in parts], -1)
        actions = torch.empty(*lanes, *head.action_shape, dtype=head.action_dtype)
        log_probs = observations.new_empty(lanes)
        mean, scale = self._moments()
        act = Act(**_addresses(
            observations=observations.contiguous(), mean=mean, scale=scale, middle=self.middle,
            parameters=self.whole, noise=noise, masks=masks, actions=actions, log_probs=log_probs,
        ))  # fmt: skip
        rows, threads = log_probs.numel(), torch.get_num_threads()
        a_part = fused.part(rows)
        pool().zoo_pool_run(self.act_task, ctypes.addressof(act), rows, threads, a_part)
        return actions, log_probs

    def gradient(self, batch: Batch, rows: Tensor, config: PPOConfig) -> Tensor:
        """Write the gradient of the loss of some of the batch's rows.

        Args:
            batch: samples, contiguous.
            rows: int64 ``(n,)``, which of them.
            config: the coefficients.

        Returns:
            ``METRICS`` of ppo.py, means over the samples that count.
        """
        agents = 1 if batch.states is None else batch.returns.shape[1]
        samples = len(rows) * agents
        a_part = fused.part(samples)
        parts = math.ceil(samples / a_part)
        sums, metrics = torch.empty(parts, len(self.whole)), torch.empty(parts, METRICS + 1)
        mean, scale = self._moments()
        pointers = {name: getattr(batch, name) for name in (*SAMPLES, "states", "masks")}
        pointers |= {
            "chosen": rows, "mean": mean, "scale": scale, "middle": self.middle,
            "parameters": self.whole, "gradient": sums, "metrics": metrics,
        }  # fmt: skip
        call = Call(
            agents=agents, rows_a_part=a_part, clip=config.clip,
            value_clip=config.value_clip or 0.0, entropy_coef=config.entropy_coef,
            value_coef=config.value_coef,
            **_addresses(**pointers),
        )  # fmt: skip
        address, threads = ctypes.addressof(call), torch.get_num_threads()
        pool().zoo_pool_run(self.part_task, address, samples, threads, a_part)
        self.library.ppo_mean(ctypes.byref(call), parts)
        assert self.whole.grad is not None
        self.whole.grad.copy_(sums[0])
        return metrics[0, :METRICS]

    def _moments(self) -> tuple[Tensor | None, Tensor | None]:
        """What observations are standardised with, in float32, as RunningMoments does it."""
        moments = self.network.moments
        if moments is None:
            return None, None
        return moments.mean.float(), moments.inverse_std().float()


def _addresses(**tensors: Tensor | None) -> dict[str, int | None]:
    return {name: None if x is None else x.data_ptr() for name, x in tensors.items()}


def _definitions(head: CategoricalHead | MultiCategoricalHead | GaussianHead) -> str:
    if isinstance(head, GaussianHead):
        return "#define GAUSSIAN 1\n"
    return f"#define GAUSSIAN 0\n#define COUNTS {', '.join(map(str, _counts(head)))}\n"


def _counts(head: CategoricalHead | MultiCategoricalHead) -> list[int]:
    """Actions of each component."""
    return head.counts if isinstance(head, MultiCategoricalHead) else [head.outputs]
