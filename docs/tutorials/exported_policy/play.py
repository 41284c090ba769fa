"""Play an exported policy in the original package's environment.

python play.py spread --episodes 100
"""

# --8<-- [start:imports]
import argparse
import importlib
import json
from pathlib import Path

import numpy as np

# --8<-- [end:imports]


# --8<-- [start:network]
def load_network(path):
    """A function from a dict of inputs to a list of outputs, all NumPy arrays."""
    if path.suffix == ".onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(path)
        return lambda inputs: session.run(None, inputs)
    import torch

    module = torch.jit.load(path)
    return lambda inputs: [out.numpy() for out in module(*map(torch.from_numpy, inputs.values()))]


# --8<-- [end:network]


# --8<-- [start:draw]
def draw(outputs, action, rng):
    """A drawn action where the network gives a distribution, else its one action."""
    if "logits" in outputs:
        logits = outputs["logits"]
        noisy = logits + rng.gumbel(size=logits.shape)  # the largest of these is a fair draw
        parts = np.split(noisy, np.cumsum(action["choices"])[:-1], axis=-1)
        drawn = np.stack([part.argmax(-1) for part in parts], -1)
        return drawn if action["kind"] == "multi_discrete" else drawn[..., 0]
    if "std" in outputs:
        noise = rng.normal(size=outputs["std"].shape)
        drawn = outputs["mean"] + outputs["std"] * noise
        return np.clip(drawn, action["low"], action["high"]).astype(np.float32)
    return outputs["action"]


# --8<-- [end:draw]


# --8<-- [start:policy]
class Policy:
    """The networks in a folder, and what each agent remembers."""

    def __init__(self, folder, deterministic=False, seed=0):
        self.described = json.loads((folder / "policy.json").read_text())
        self.networks = {
            name: load_network(folder / network["file"])
            for name, network in self.described["networks"].items()
        }
        self.deterministic = deterministic
        self.rng = np.random.default_rng(seed)
        self.memories = {}

    def reset(self):
        """Forget all, before an episode."""
        self.memories = {}

    def act(self, agent, observation):
        """One agent's action; None for an agent that was played at random in training."""
        name = self.described["agents"][agent]
        if name is None:
            return None
        about = self.described["networks"][name]
        inputs = {"observation": np.asarray(observation, np.float32)[None]}  # a batch of one
        if about["memory_size"]:
            blank = np.zeros((1, about["memory_size"]), np.float32)
            inputs["memory"] = self.memories.get(agent, blank)
        outputs = dict(zip(about["outputs"], self.networks[name](inputs), strict=True))
        self.memories[agent] = outputs.get("next_memory")
        if self.deterministic:
            return outputs["action"][0]
        return draw(outputs, about["action"], self.rng)[0]


# --8<-- [end:policy]


# --8<-- [start:play]
def play(policy, episodes, seed=0):
    """Returns of whole episodes, a list of dicts by agent."""
    name = policy.described["env_id"].split("/")[-1]
    env = importlib.import_module(f"mpe2.{name}").parallel_env(**policy.described["env_params"])
    returns = []
    for episode in range(episodes):
        observations, _ = env.reset(seed=seed + episode)
        policy.reset()
        total = dict.fromkeys(env.agents, 0.0)
        while env.agents:
            actions = {agent: policy.act(agent, observations[agent]) for agent in env.agents}
            for agent, action in actions.items():
                if action is None:
                    actions[agent] = env.action_space(agent).sample()
            observations, rewards, *_ = env.step(actions)
            for agent, reward in rewards.items():
                total[agent] += float(reward)
        returns.append(total)
    return returns


# --8<-- [end:play]


# --8<-- [start:main]
def main():
    """Print each agent's mean return and its standard error."""
    parser = argparse.ArgumentParser(description="Play an exported policy.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--deterministic", action="store_true")
    options = parser.parse_args()
    returns = play(Policy(options.folder, options.deterministic), options.episodes)
    for agent in returns[0]:
        numbers = [total[agent] for total in returns]
        error = np.std(numbers, ddof=1) / np.sqrt(len(numbers)) if len(numbers) > 1 else np.nan
        print(f"{agent}  {np.mean(numbers):.3f} ± {error:.3f}")


if __name__ == "__main__":
    main()
# --8<-- [end:main]
