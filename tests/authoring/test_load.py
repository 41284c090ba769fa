"""Authors' files: found, loaded, loaded again; a mistake in one is one line with its place."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest
from authoring.edits import edit

import gpu_zoo
from gpu_zoo import registry
from gpu_zoo.authoring import LoadError, find, load, load_rules, locate, rules_of
from gpu_zoo.registry import UnknownEnvironment


def test_a_loaded_environment_is_registered(folder: Path) -> None:
    spec = load(folder / "my_env_v0.py")
    assert gpu_zoo.spec("mine/my_env_v0") is spec
    env = gpu_zoo.make_vec("my_env_v0", num_envs=2)
    assert env.agents == ("walker_0", "walker_1", "walker_2")
    env.reset(seed=0)
    env.step()


@pytest.mark.parametrize("text", ["my_env", "./my_env", "my_env/", "my_env/my_env_v0.py"])
def test_ways_to_name_it(folder: Path, text: str) -> None:
    assert find(text).id == "mine/my_env_v0"
    rules = rules_of(text)
    assert rules is not None
    assert rules.__name__ == "Rules"


def test_an_id_is_an_id(folder: Path) -> None:
    for text in ("mpe/simple_tag_v3", "simple_tag_v3"):
        assert locate(text) is None
        assert find(text) is gpu_zoo.spec("mpe/simple_tag_v3")
        assert rules_of(text) is None
    # A folder of that name changes nothing.
    Path("simple_tag_v3").mkdir()
    assert locate("simple_tag_v3") is None
    with pytest.raises(UnknownEnvironment, match="'my_envs'"):
        find("my_envs")


def test_of_several_versions_a_folder_means_the_newest(folder: Path) -> None:
    text = (folder / "my_env_v0.py").read_text()
    for version in (2, 10):
        (folder / f"my_env_v{version}.py").write_text(text)
    assert locate("my_env") == Path("my_env/my_env_v10.py")


def test_loading_again_takes_what_has_changed(folder: Path) -> None:
    first = load("my_env/my_env_v0.py")
    assert sys.modules["my_env_v0"].__file__ == str(folder / "my_env_v0.py")
    edit(folder / "my_env_v0.py", "Param(10,", "Param(12,")
    second = load("my_env/my_env_v0.py")
    assert (first.resolve({})["length"], second.resolve({})["length"]) == (10, 12)
    assert gpu_zoo.spec("mine/my_env_v0") is second


def test_a_file_may_import_its_neighbours_and_leave_registering_to_us(folder: Path) -> None:
    (folder / "sizes_v0.py").write_text("LENGTH = 7\n")
    edit(folder / "my_env_v0.py", "import gpu_zoo\n", "import sizes_v0\n")
    edit(folder / "my_env_v0.py", "Param(10,", "Param(sizes_v0.LENGTH,")
    edit(folder / "my_env_v0.py", "gpu_zoo.register(SPEC)\n", "")
    assert load("my_env/my_env_v0.py").resolve({})["length"] == 7
    assert "mine/my_env_v0" in gpu_zoo.list_ids()


def test_a_kernel_lies_beside_the_file(folder: Path) -> None:
    edit(folder / "my_env_v0.py", 'str(Path(__file__).resolve().with_suffix(".cu"))',
         '"my_env_v0.cu"')  # fmt: skip
    edit(folder / "my_env_v0.py", "gpu_zoo.register(SPEC)\n", "")
    spec = load("my_env/my_env_v0.py")
    assert spec.kernel_path == folder / "my_env_v0.cu"
    gpu_zoo.make_vec(spec.id, num_envs=1)


def test_a_name_that_another_module_has_stays_its_own(folder: Path) -> None:
    (folder / "my_env_v0.py").rename(folder / "json.py")
    (folder / "my_env_v0.cu").rename(folder / "json.cu")
    import json

    assert load("my_env/json.py").id == "mine/my_env_v0"
    assert sys.modules["json"] is json
    assert json.loads("[1]") == [1]


def test_rules_by_name(folder: Path) -> None:
    edit(folder / "my_env_rules.py", "class Rules:", "class Other:")
    assert load_rules("my_env/my_env_rules.py", "Other").__name__ == "Other"
    found = rules_of("mpe/simple_tag_v3", "my_env/my_env_rules.py:Other")
    assert found is not None and found.__name__ == "Other"
    with pytest.raises(LoadError, match=r"^my_env/my_env_rules.py: no class Rules$"):
        rules_of("my_env")
    (folder / "my_env_rules.py").unlink()
    assert rules_of("my_env") is None


MISTAKES = {
    "no file": ("", "", "my_env/nothing.py: no such file"),
    "syntax": ("SPEC = EnvSpec(", "SPEC == EnvSpec)(", "{line}: SyntaxError: unmatched ')'"),
    "name": ("Param(10,", "Parm(10,", "{line}: NameError: name 'Parm' is not defined"),
    "argument": (
        'reward="',
        'rewards="',
        ": TypeError: EnvSpec.__init__() got an unexpected keyword argument 'rewards'",
    ),
    "field": ('Field("i32", ("N",)', 'Field("f64", ("N",)', "ValueError: state['pos']: dtype"),
    "size": ('Field("i32", ("N",)', 'Field("i32", ("M",)', ": ValueError: size 'M': "),
    "id": (
        'id="mine/my_env_v0"',
        'id="my_env"',
        "ValueError: id='my_env': expected 'family/",
    ),
    "taken": (
        'id="mine/my_env_v0"',
        'id="mpe/simple_v3"',
        "ValueError: id='mpe/simple_v3': ",
    ),
    "kernel": ('with_suffix(".cu")', 'with_suffix(".cuda")', "my_env_v0.cuda': no such file"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_with_its_place(folder: Path, name: str) -> None:
    old, new, says = MISTAKES[name]
    file = "my_env/nothing.py" if name == "no file" else "my_env/my_env_v0.py"
    line = edit(folder / "my_env_v0.py", old, new) if old else 0
    before = gpu_zoo.list_ids()
    with pytest.raises(LoadError) as caught:
        load(file)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(file)
    assert says.format(line=f"{file}:{line}") in message
    assert gpu_zoo.list_ids() == before
    assert "my_env_v0" not in sys.modules


@pytest.mark.parametrize(("value", "says"), [("", "no SPEC"), ("SPEC = 3", "SPEC is a int")])
def test_a_file_without_a_spec(folder: Path, value: str, says: str) -> None:
    Path("other.py").write_text(value)
    with pytest.raises(LoadError, match=rf"^other.py: {says}, expected SPEC = EnvSpec\(...\)$"):
        load("other.py")


def test_a_folder_without_an_environment(folder: Path) -> None:
    Path("empty").mkdir()
    with pytest.raises(LoadError, match=r"^empty: no empty_v0.py in this folder$"):
        find("empty")


def test_registering_the_same_kernel_again(folder: Path) -> None:
    spec = load("my_env/my_env_v0.py")
    longer = dataclasses.replace(spec, summary="Another.")
    gpu_zoo.register(longer)
    assert registry.ENVIRONMENTS[spec.id] is longer
    env = gpu_zoo.make(spec.id)
    observations, _ = env.reset(seed=0)
    assert {value.dtype for value in observations.values()} == {np.dtype(np.float32)}
