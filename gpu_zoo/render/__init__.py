"""Pictures of environments: one small draw function an environment."""

from gpu_zoo.spec import Param

RENDER_MODE = Param(
    None, "how render() shows the scene", at="host", choices=(None, "human", "rgb_array")
)
