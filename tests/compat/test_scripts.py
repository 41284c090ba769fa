"""CleanRL's and PettingZoo's own scripts train on our environments; see scripts.py.

Those of PettingZoo's tutorials are written for its games, which are not ours: simple_spread is in
their place, painted as a picture where a script's network wants one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .scripts import CLEANRL, PETTINGZOO, maker, paint, reference, run, source

torch: Any = pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
IMPORT = {"from pettingzoo import make\n": "\n"}  # `make` is given
SPREAD = "mpe/simple_spread-v3"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts write logs and models where they run, and show windows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    torch.manual_seed(0)
    np.random.seed(0)


def test_pettingzoos_cleanrl_tutorial(capsys: pytest.CaptureFixture[str]) -> None:
    """And the rewards it trained on are those that mpe2 gives for its actions."""
    pytest.importorskip("supersuit")
    mpe2 = pytest.importorskip("mpe2.simple_spread_v3")
    script = source(PETTINGZOO, "tutorials/CleanRL/cleanrl.py")
    shorter = {
        "max_cycles = 125": "max_cycles = 25",
        "env.reset(seed=None)": "env.reset(seed=5)",  # to play the episode again
        'render_mode="human"': 'render_mode="rgb_array"',
        "range(5)": "range(1)",
    }
    done = run(script, {**IMPORT, **shorter}, make=maker(SPREAD, paint))
    original = mpe2.parallel_env()
    original.reset(seed=5)
    for t in range(25):
        chosen = done["rb_actions"][t].int().tolist()
        _, rewards, _, truncations, _ = original.step(
            dict(zip(original.possible_agents, chosen, strict=True))
        )
        np.testing.assert_allclose(done["rb_rewards"][t], list(rewards.values()), rtol=1e-6)
    assert all(truncations.values()) and done["end_step"] == 24
    total = done["rb_rewards"].sum(0).numpy()
    np.testing.assert_allclose(done["total_episodic_return"], total, rtol=1e-5)
    printed = re.findall(r"Episodic Return: (\S+)", capsys.readouterr().out)
    assert len(printed) == 2 and float(printed[1]) == pytest.approx(total.mean(), rel=1e-5)


def test_pettingzoos_cleanrl_tutorial_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """CleanRL's PPO for two players, as PettingZoo keeps it up to date; beside mpe2's."""
    pytest.importorskip("supersuit")
    pytest.importorskip("imageio")
    script = source(PETTINGZOO, "tutorials/CleanRL/cleanrl_advanced.py")
    numbers = "--num-envs 4 --num-steps 16 --total-timesteps 128 --update-epochs 1 --cuda False"
    monkeypatch.setattr("sys.argv", ["script.py", *numbers.split()])
    theirs = reference("simple_spread_v3")
    done = [
        run(script, IMPORT, make=make)
        for make in (
            maker(SPREAD, paint, N=2),
            lambda kind, name: paint(theirs(kind, name, N=2)),
        )
    ]
    for each in done:
        assert each["global_step"] == 128
        # Four steps are one, so that an episode of 25 steps is over in seven, twice in sixteen.
        assert each["truncations"][:, 0].nonzero().flatten().tolist() == [5, 12]
    for name in ("obs", "actions", "rewards", "truncations", "advantages"):
        torch.testing.assert_close(done[0][name], done[1][name], rtol=1e-5, atol=1e-5)
    assert torch.isfinite(done[0]["loss"])


def test_cleanrls_own_script_is_of_another_time() -> None:
    """It is for gym 0.23 and SuperSuit before 3.7, whatever the environment; the page says so."""
    script = source(CLEANRL, "cleanrl/ppo_pettingzoo_ma_atari.py")
    assert "import gym\n" in script and 'base_class="gym"' in script
    assert "next_obs, reward, done, info = envs.step" in script
    supersuit = pytest.importorskip("supersuit")
    with pytest.raises(ValueError, match="only supports 'gymnasium'"):
        vectors = supersuit.pettingzoo_env_to_vec_env_v1(maker(SPREAD)("parallel", ""))
        supersuit.concat_vec_envs_v1(vectors, 2, base_class="gym")


def evaluated_alike(done: dict[str, Any], ours: Any, theirs: Any) -> None:
    """What was trained earns on mpe2 what it earns on ours, in the script's own games."""
    returns = []
    for make in (ours, theirs):
        done["make"] = make
        returns.append(done["eval"]("", num_games=2, max_cycles=5))
    assert returns[0] == pytest.approx(returns[1], rel=1e-6)
    assert -100 < returns[0] < 0


def test_pettingzoos_stable_baselines3_tutorial() -> None:
    """The one for Knights, Archers, Zombies as vectors; that simple_spread is one is left out."""
    pytest.importorskip("supersuit")
    pytest.importorskip("stable_baselines3")
    script = source(PETTINGZOO, "tutorials/SB3/kaz/sb3_kaz_vector.py")
    shorter = {
        "not env.unwrapped.vector_state": "False",
        "batch_size=256,": "batch_size=256, n_steps=32,",
        "steps=81_920": "steps=1536",
        "num_games=10, render_mode=None": "num_games=2, render_mode=None",
        'eval(env_id, num_games=2, render_mode="human", **env_kwargs)': "",
    }
    make = maker(SPREAD)
    done = run(script, {**IMPORT, **shorter}, make=make)
    evaluated_alike(done, make, reference("simple_spread_v3"))


def test_pettingzoos_stable_baselines3_tutorial_for_pictures() -> None:
    """The one for Pistonball, with continuous actions and two processes."""
    pytest.importorskip("supersuit")
    pytest.importorskip("stable_baselines3")
    script = source(PETTINGZOO, "tutorials/SB3/pistonball/sb3_pistonball_vector.py")
    shorter = {
        "n_steps=256": "n_steps=32",
        "n_epochs=5": "n_epochs=1",
        "steps=40_960 * 2": "steps=384",
        "num_games=10, render_mode=None": "num_games=1, render_mode=None",
        'eval(env_id, num_games=2, render_mode="human", **env_kwargs)': "",
    }
    make = maker(SPREAD, paint)
    done = run(script, {**IMPORT, **shorter}, make=make)
    theirs = reference("simple_spread_v3")

    def painted(kind: str, name: str, **params: Any) -> Any:
        return paint(theirs(kind, name, continuous_actions=True, **params))

    evaluated_alike(done, maker(SPREAD, paint, continuous_actions=True), painted)


def test_pettingzoos_tianshou_tutorial() -> None:
    """A DQN beside an agent that acts at random, on Tianshou 0.5, for which it is written."""
    tianshou = pytest.importorskip("tianshou")
    if not tianshou.__version__.startswith("0.5"):
        pytest.skip(f"tianshou {tianshou.__version__}; the script is for 0.5")
    script = source(PETTINGZOO, "tutorials/Tianshou/2_training_agents.py")
    shorter = {
        "max_epoch=50": "max_epoch=1",
        "step_per_epoch=1000": "step_per_epoch=200",
        "range(10)": "range(2)",
        "mean_rewards >= 0.6": "False",  # a tic-tac-toe player wins; here nobody earns more than 0
    }
    done = run(script, {**IMPORT, **shorter}, make=maker(SPREAD, N=2))
    assert done["result"]["train_step"] >= 200
    assert -1000 < done["result"]["best_reward"] < 0


def test_agilerls_tutorial() -> None:
    """MATD3 on the speaker and the listener, on AgileRL 2.2: the import is all that changes."""
    pytest.importorskip("agilerl.components.multi_agent_replay_buffer")  # gone in later ones
    script = source(PETTINGZOO, "tutorials/AgileRL/agilerl_matd3.py")
    changes = {
        "from mpe2 import simple_speaker_listener_v4": (
            "from gpu_zoo.mpe import simple_speaker_listener_v4"
        ),
        "num_envs = 8": "num_envs = 2",
        '"POPULATION_SIZE": 4': '"POPULATION_SIZE": 2',
        "max_steps = 13000": "max_steps = 200",
        "evo_steps = 1000": "evo_steps = 200",
    }
    done = run(script, changes)
    assert all(agent.steps[-1] >= 200 for agent in done["pop"])
    assert all(-1000 < score < 0 for score in np.ravel(done["fitnesses"]))
