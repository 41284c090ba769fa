"""The subcommand ``gpu-zoo bench``."""

from __future__ import annotations

from typing import Any

from gpu_zoo.arguments import (
    File,
    Flag,
    OptionalEnvId,
    Params,
    RulesClass,
    UserError,
    find_spec,
    parse_params,
    user_errors,
)
from gpu_zoo.registry import list_ids
from gpu_zoo.spec import EnvSpec


def bench(
    env_id: OptionalEnvId = None,
    *,
    family: str | None = None,
    peers: Flag = False,
    rules: RulesClass = None,
    params: Params = [],  # noqa: B006
    sweep: str | None = None,
    num_envs: tuple[int, ...] | None = None,
    seconds: float = 1.0,
    device: str = "auto",
    json: File = None,
) -> int:
    """Measure steps a second, and those of other packages.

    Args:
        env_id: environment, such as simple_spread_v3, or a file of your own; none with --family.
        family: measure all environments of a family, such as mpe, and print one table of them.
        peers: also time mpe2, JaxMARL, VMAS and Gymnasium, where they are installed.
        rules: also time the same rules in plain Python, FILE.PY:CLASS.
        params: environment parameter.
        sweep: measure for several values of a parameter, NAME=VALUE,VALUE,...
        num_envs: batch sizes; 1, 64, 1024, 4096, 16384 and 65536, of a family or a sweep fewer.
        seconds: how long a round lasts, about.
        device: auto, cpu, cuda or cuda:<index>.
        json: also write all rounds to this file.
    """
    from gpu_zoo.authoring import rules_of
    from gpu_zoo.backends import resolve_device

    if (env_id is None) == (family is None):
        raise UserError("bench: expected an environment or --family, one of the two")
    families = sorted({known.split("/")[0] for known in list_ids()})
    if family is not None and family not in families:
        raise UserError(f"--family {family}: expected one of {', '.join(families)}")
    if num_envs is not None and (not num_envs or min(num_envs) < 1):
        raise UserError(f"--num-envs {' '.join(map(str, num_envs))}: expected positive numbers")
    if not seconds > 0:
        raise UserError(f"--seconds {seconds:g}: expected more than 0")
    for option, given in (("--rules", rules), ("--param", params), ("--sweep", sweep)):
        if given and family is not None:
            raise UserError(f"{option}: not with --family")
    if sweep is not None and (peers or rules):
        raise UserError("--sweep: not with --peers or --rules")
    with user_errors("--"):
        resolve_device(device)
    from gpu_zoo import bench as benches

    options: dict[str, Any] = {"num_envs": num_envs} if num_envs else {}
    options |= {"seconds": seconds, "device": device, "json": json}
    if env_id is None:
        benches.bench_family(str(family), peers=peers, **options)
        return 0
    entry = find_spec(env_id)
    options["params"] = parse_params(entry, params)
    if sweep is not None:
        name, values = _swept(entry, sweep)
        benches.bench_sweep(entry.id, name, values, **options)
        return 0
    with user_errors():
        python_rules = rules_of(env_id, rules)
    benches.bench(entry.id, peers=peers, rules=python_rules, **options)
    return 0


def _swept(entry: EnvSpec, text: str) -> tuple[str, list[Any]]:
    """``num_runners=4,90`` as the parameter and its values, each checked."""
    name, _, values = text.partition("=")
    return name, [parse_params(entry, [f"{name}={value}"])[name] for value in values.split(",")]
