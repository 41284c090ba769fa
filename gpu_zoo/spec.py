"""What an environment is, as pure data: parameters, agents, state, observations, actions.

Everything else that needs to know an environment's shape (the C structs, the spaces, the buffers,
the documentation tables) is derived from its :class:`EnvSpec`, so nothing is declared twice.

Sizes may depend on parameters. They are written as Python expressions in strings, such as
``"2 * (N - 1)"``, over the parameter names and the spec's constants; the same string appears in
the documentation tables.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

RESERVED = ("rng", "steps", "done", "last_lengths")  # get_state() has these besides the fields
Expr = int | str
Value = bool | int | float | str | tuple[float, ...] | None
Numerics = Literal["fast", "reference"]
Run = tuple[Expr, bool | float]  # how many numbers in a row have which value


@dataclass(frozen=True)
class Param:
    """A constructor parameter of an environment.

    Attributes:
        default: value when the user gives none; its type is the parameter's type.
        doc: one line for the documentation and for error messages.
        at: where the value is needed. ``"compile"``: it changes array shapes, so it becomes a
            constant in the kernel. ``"launch"``: a field of ``Params``, changed without compiling.
            ``"host"``: never reaches the kernel.
        low: smallest accepted number (inclusive), or None.
        high: largest accepted number (inclusive), or None.
        choices: the accepted values, if they are few.
        kind: the accepted type; derived from ``default`` unless given.
        optional: whether ``None`` is accepted.
    """

    default: Value
    doc: str
    at: Literal["compile", "launch", "host"] = "launch"
    low: float | None = None
    high: float | None = None
    choices: tuple[Value, ...] | None = None
    kind: type | None = None
    optional: bool = False

    @property
    def type(self) -> type:
        """The Python type a value must have."""
        return self.kind if self.kind is not None else type(self.default)

    @property
    def accepts(self) -> str:
        """What is accepted, in words, for error messages and tables."""
        if self.choices is not None:
            return "one of " + ", ".join(map(repr, self.choices))
        text = "numbers" if self.type is tuple else self.type.__name__
        if self.low is not None and self.high is not None:
            text += f" from {self.low:g} to {self.high:g}"
        elif self.low is not None:
            text += f" of at least {self.low:g}"
        elif self.high is not None:
            text += f" of at most {self.high:g}"
        return text + (" or None" if self.optional else "")

    def check(self, name: str, value: Any) -> Value:
        """Return ``value`` as the parameter's type, or raise an error that names the parameter.

        Raises:
            TypeError: the value has the wrong type.
            ValueError: the value is out of range.
        """
        wrong = f"{name}={value!r}: expected {self.accepts}"
        if self.choices is not None:
            for choice in self.choices:  # True is no 1, though they are equal
                if value == choice and isinstance(value, bool) == isinstance(choice, bool):
                    return choice
            raise ValueError(wrong)
        if value is None:
            if not self.optional:
                raise TypeError(wrong)
            return None
        if self.type is tuple:
            return self._check_tuple(wrong, value)
        if self.type is str:
            if not isinstance(value, str):
                raise TypeError(wrong)
            return value
        is_bool = isinstance(value, (bool, np.bool_))
        if self.type is bool:
            if not is_bool:
                raise TypeError(wrong)
            return bool(value)
        if is_bool or not isinstance(
            value, (int, np.integer) if self.type is int else (int, float, np.integer, np.floating)
        ):
            raise TypeError(wrong)
        number = int(value) if self.type is int else float(value)
        below = self.low is not None and not number >= self.low
        above = self.high is not None and not number <= self.high
        if below or above:
            raise ValueError(wrong)
        if not -(2**31) <= number < 2**31:
            raise ValueError(f"{wrong}, below 2**31")
        return number

    def _check_tuple(self, wrong: str, value: Any) -> tuple[float, ...]:
        if isinstance(value, str) or not hasattr(value, "__iter__"):
            raise TypeError(wrong)
        if not all(isinstance(v, Real) for v in value):
            raise TypeError(wrong)
        return tuple(float(v) for v in value)


@dataclass(frozen=True)
class Field:
    """A field of the kernel's ``State`` (kept between steps) or ``Scratch`` (lives for one step).

    Attributes:
        dtype: ``"real"`` (float32 in fast numerics, float64 in reference numerics), ``"i32"``,
            ``"u8"``, ``"u64"`` (in ``Scratch`` only), or ``"rng"``: a random number generator,
            ``shape`` then being ().
        shape: sizes, outermost first.
        doc: one line, with the unit.
        at_reset: written only by ``env_reset``, so a step need not store it.
    """

    dtype: Literal["real", "i32", "u8", "u64", "rng"]
    shape: tuple[Expr, ...]
    doc: str
    at_reset: bool = False


@dataclass(frozen=True)
class Table:
    """An array of numbers that all environments share and no step changes.

    Attributes:
        dtype: ``"real"`` or ``"i32"``.
        shape: sizes, outermost first.
        doc: one line, with the unit.
        load: given the parameters, the numbers as an array of that shape.
    """

    dtype: Literal["real", "i32"]
    shape: tuple[Expr, ...]
    doc: str
    load: Callable[[Mapping[str, Value]], npt.ArrayLike]


@dataclass(frozen=True)
class Slice:
    """A named run of entries of an observation or info vector.

    Attributes:
        size: how many entries.
        doc: what they hold.
        low: the least value of each in an observation; the space and the checks derive from it.
        high: the greatest.
    """

    size: Expr
    doc: str
    low: float = -np.inf
    high: float = np.inf

    @property
    def bounded(self) -> bool:
        """Whether a value has a limit on either side."""
        return bool(np.isfinite([self.low, self.high]).any())


@dataclass(frozen=True)
class Actions:
    """An action space: ``Discrete(n)``, ``MultiDiscrete(choices)`` or ``Box(low, high, (n,))``.

    Attributes:
        names: what action 0, 1, ... (or component 0, 1, ...) does.
        box: bounds of a continuous action, or None for a discrete one.
        choices: how many values each component of a multi-discrete action has, or None.
    """

    names: tuple[str, ...]
    box: tuple[float, float] | None = None
    choices: tuple[Expr, ...] | None = None

    def sized(self, scope: Mapping[str, Any]) -> Actions:
        """The same with the choices worked out."""
        if self.choices is None:
            return self
        return replace(self, choices=tuple(evaluate(count, scope) for count in self.choices))

    @property
    def components(self) -> int:
        """Entries of one agent's action: 0 if it is a single integer."""
        return 0 if self.box is None and self.choices is None else len(self.names)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the batch's action array: float32 for a box, else int32."""
        return np.dtype(np.int32 if self.box is None else np.float32)

    @property
    def counts(self) -> tuple[int, ...]:
        """How many values each component has; () for a box."""
        if self.box is not None:
            return ()
        sized = (len(self.names),) if self.choices is None else self.choices
        return tuple(int(count) for count in sized)

    @property
    def limits(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Least and greatest value of each component, both inclusive; of shape (1,) if discrete."""
        if self.box is not None:
            low, high = (np.full(len(self.names), side, np.float32) for side in self.box)
            return low, high
        return np.zeros(len(self.counts), np.int32), np.array(self.counts, np.int32) - 1

    def space(self) -> spaces.Space[Any]:
        """A new Gymnasium space, as one agent sees it."""
        if self.box is not None:
            return spaces.Box(self.box[0], self.box[1], (len(self.names),), np.float32)
        if self.choices is not None:
            return spaces.MultiDiscrete(np.array(self.choices, np.int64))
        return spaces.Discrete(len(self.names))

    def __str__(self) -> str:
        if self.box is not None:
            return f"Box({self.box[0]:g}, {self.box[1]:g}, ({len(self.names)},), float32)"
        if self.choices is not None:
            return f"MultiDiscrete([{', '.join(map(str, self.choices))}])"
        return f"Discrete({len(self.names)})"


@dataclass(frozen=True)
class Group:
    """Agents with the same spaces. They are named ``{name}_0``, ``{name}_1``, ...

    Attributes:
        name: the prefix of the agents' names.
        count: how many agents.
        observation: the parts of the observation vector (float32), in order.
        actions: one action space, or several of which ``choice`` says which it is.
        info: the parts of the info vector the kernel's ``env_info`` writes, in order; none if the
            environment has a parameter ``benchmark_data`` and it is false.
        info_value: turns one agent's info row into the value the reference package reports.
        choice: which of the action spaces, counted from 0; by default ``continuous_actions``
            chooses from (discrete, continuous).
        action_mask: the kernel's ``env_mask`` says which actions an agent may take now. Only where
            the action space chosen is discrete; a box has no mask.

    Raises:
        TypeError: ``action_mask`` is no bool.
        ValueError: a mask, and none of the action spaces is discrete.
    """

    name: str
    count: Expr
    observation: Mapping[str, Slice]
    actions: tuple[Actions, ...]
    info: Mapping[str, Slice] = field(default_factory=dict)
    info_value: Callable[[Any], Any] | None = None
    choice: Expr | None = None
    action_mask: bool = False

    def __post_init__(self) -> None:
        wrong = f"group {self.name!r}: action_mask={self.action_mask!r}"
        if not isinstance(self.action_mask, bool):
            raise TypeError(f"{wrong}, expected a bool")
        if self.action_mask and all(space.box is not None for space in self.actions):
            spaces_given = " or ".join(map(str, self.actions))
            raise ValueError(f"{wrong} with {spaces_given}, expected a discrete action space")


@dataclass(frozen=True)
class GroupLayout:
    """A group with its sizes worked out for given parameters."""

    name: str
    agents: tuple[str, ...]
    start: int
    obs_low: tuple[float, ...]
    obs_high: tuple[float, ...]
    info_size: int
    actions: Actions
    info_value: Callable[[Any], Any] | None
    action_mask: bool

    @property
    def count(self) -> int:
        """Number of agents."""
        return len(self.agents)

    @property
    def obs_size(self) -> int:
        """Entries of one agent's observation."""
        return len(self.obs_low)

    def observation_space(self) -> spaces.Box:
        """A new Gymnasium space, as one agent sees it; float32 ``(obs_size,)``."""
        low, high = (np.array(side, np.float32) for side in (self.obs_low, self.obs_high))
        return spaces.Box(low, high, dtype=np.float32)

    @property
    def action_size(self) -> int:
        """Entries of one agent's action: 0 for a discrete action, which is a single integer."""
        return self.actions.components

    @property
    def mask_size(self) -> int:
        """Entries of one agent's action mask, its components' side by side; 0 without a mask."""
        return sum(self.actions.counts) if self.action_mask else 0


@dataclass(frozen=True, eq=False)
class EnvSpec:
    """All that is known about an environment apart from its rules, which are the kernel file.

    Attributes:
        id: ``family/name_vN``.
        kernel: the rules; a path relative to ``kernels/``, or an absolute path.
        summary: one sentence.
        params: constructor parameters in the reference's order.
        groups: groups of agents; agents are numbered through the groups in order.
        state: fields kept between steps.
        scratch: fields that live for one step.
        tables: arrays that all environments share, as ``e.io.tables.<name>`` in the kernel.
        constants: more integers the kernel needs, from the parameters.
        traits: constants by number: function ``name(i)`` of the kernel gives the first run's value
            to the first so many numbers, and so on.
        shape: ``"lane"`` (one thread an environment) or ``"block"`` (a team of threads: part of a
            block, one or several, by the number of agents); ``"auto"`` takes lane up to 8 agents.
        starts: given the parameters, a pool of states to start in, or None; see
            :meth:`~gpu_zoo.vector.VectorEnv.set_reset_pool`.
        starts_use: parameters that the kernel reads and ``starts`` uses, too.
        check: raises ValueError for parameter values that do not go together.
        reward: the reward in words.
        ends: when an episode terminates, in words.
        time_limit: the parameter that says after how many steps an episode is truncated.
        timeout_wins: at the time limit an agent is truncated and never terminated, as in mpe2;
            otherwise it may be both, as behind Gymnasium's TimeLimit.
        leaving: agents may terminate one by one while the others go on.
        reference: package and version this follows, such as ``"mpe2 1.1.1"``.
        notes: differences from the reference and oddities kept from it.
        render: ``"module:function"`` that draws one environment, imported only when needed.
        render_fps: frames a second that a window shows and a recording plays.
        inside: likewise one that is given a drop-in's :class:`~gpu_zoo.wrappers.game.Game`
            and returns, by name, functions that get what code written against the reference reads
            from its unwrapped environment.
        history: version history, newest first.
    """

    id: str
    kernel: str
    summary: str
    params: Mapping[str, Param]
    groups: tuple[Group, ...]
    state: Mapping[str, Field]
    scratch: Mapping[str, Field] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    constants: Mapping[str, Expr] = field(default_factory=dict)
    traits: Mapping[str, tuple[Run, ...]] = field(default_factory=dict)
    shape: Literal["lane", "block", "auto"] = "auto"
    starts: Callable[[Mapping[str, Value]], Mapping[str, Any] | None] | None = None
    starts_use: tuple[str, ...] = ()
    check: Callable[[Mapping[str, Value]], None] | None = None
    reward: str = ""
    ends: str = ""
    time_limit: str = "max_cycles"
    timeout_wins: bool = True
    leaving: bool = False
    reference: str = ""
    notes: tuple[str, ...] = ()
    render: str | None = None
    render_fps: int = 10
    inside: str | None = None
    history: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [group.name for group in self.groups]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"groups: {name!r} twice")
        for name, field_ in {**self.state, **self.scratch}.items():
            if not name.isidentifier() or name in RESERVED:
                raise ValueError(f"state[{name!r}]: expected a C identifier not in {RESERVED}")
            wide = ("u64",) if name in self.scratch else ()
            if field_.dtype not in ("real", "i32", "u8", "rng", *wide):
                raise ValueError(
                    f"state[{name!r}]: dtype {field_.dtype!r}, "
                    "expected 'real', 'i32', 'u8' or 'rng'"
                )
            if field_.dtype == "rng" and (field_.shape or name in self.scratch):
                raise ValueError(f"state[{name!r}]: expected an 'rng' to be one field of the state")

    @property
    def name(self) -> str:
        """The id without its family: ``simple_spread_v3``."""
        return self.id.rsplit("/", 1)[-1]

    @property
    def family(self) -> str:
        """The id's family: ``mpe``."""
        return self.id.rsplit("/", 1)[0]

    @property
    def kernel_path(self) -> Path:
        """Where the kernel file lies."""
        from gpu_zoo.compile import KERNELS

        return KERNELS / self.kernel

    def resolve(self, given: Mapping[str, Any]) -> Mapping[str, Value]:
        """Check ``given`` parameters and add the defaults.

        Raises:
            TypeError: an unknown parameter (the message names the nearest), or a wrong type.
            ValueError: a value out of range.
        """
        for name in given:
            if name not in self.params:
                near = difflib.get_close_matches(name, self.params, n=3, cutoff=0.4)
                hint = f"; did you mean {' or '.join(near)}?" if near else "."
                raise TypeError(
                    f"{self.id} has no parameter {name!r}{hint} It takes {', '.join(self.params)}."
                )
        values = {
            name: param.check(name, given[name]) if name in given else param.default
            for name, param in self.params.items()
        }
        if self.check is not None:
            self.check(values)
        return MappingProxyType(values)

    def scope(self, params: Mapping[str, Value]) -> dict[str, Any]:
        """Names an expression may use: the parameters, then the constants, worked out in order."""
        scope: dict[str, Any] = dict(params)
        for name, expression in self.constants.items():
            scope[name] = evaluate(expression, scope)
        return scope

    def layout(self, params: Mapping[str, Value]) -> tuple[GroupLayout, ...]:
        """The groups that have agents under these parameters, sizes worked out."""
        scope = self.scope(params)
        layouts: list[GroupLayout] = []
        start = 0
        for group in self.groups:
            count = evaluate(group.count, scope)
            if count == 0:
                continue
            infos = group.info if params.get("benchmark_data", True) else {}
            parts = [(evaluate(s.size, scope), s) for s in group.observation.values()]
            continuous = bool(params.get("continuous_actions", False))
            chosen = continuous if group.choice is None else evaluate(group.choice, scope)
            layouts.append(
                GroupLayout(
                    name=group.name,
                    agents=tuple(f"{group.name}_{i}" for i in range(count)),
                    start=start,
                    obs_low=tuple(part.low for size, part in parts for _ in range(size)),
                    obs_high=tuple(part.high for size, part in parts for _ in range(size)),
                    info_size=sum(evaluate(s.size, scope) for s in infos.values()),
                    actions=group.actions[chosen].sized(scope),
                    info_value=group.info_value,
                    action_mask=group.action_mask,
                )
            )
            start += count
        return tuple(layouts)


def ranges(
    slices: Mapping[str, Slice], scope: Mapping[str, Any]
) -> Iterator[tuple[str, Slice, int, int]]:
    """Each slice's name, itself, and where it starts and ends in the vector."""
    start = 0
    for name, part in slices.items():
        end = start + evaluate(part.size, scope)
        yield name, part, start, end
        start = end


def evaluate(expression: Expr, scope: Mapping[str, Any]) -> int:
    """Work out a size such as ``"2 * (N - 1)"``; ``scope`` gives the names their values."""
    if isinstance(expression, int):
        return expression
    try:
        return int(eval(expression, {"__builtins__": {"max": max, "min": min}}, dict(scope)))
    except Exception as error:
        known = ", ".join(scope)
        raise ValueError(f"size {expression!r}: {error}; it may use {known}") from None
