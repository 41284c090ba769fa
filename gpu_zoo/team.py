"""How many GPU threads simulate one environment, where more than one does: its team."""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32
PACKED_THREADS = 128  # of a block that several environments share
BLOCK_THREADS = 256  # of a block, at most, that one environment has to itself
MAX_BLOCK_AGENTS = 1024  # with more, an environment takes several blocks
MAX_BLOCKS = 16  # that an environment may take
SHARED_BYTES = 48 * 1024  # that every GPU gives a block without being asked
MAX_SLOTS = 1024  # environments in the making at once, where their workspaces lie in memory


@dataclass(frozen=True)
class Team:
    """The threads of one environment.

    A few agents need only part of a warp, and environments share a block; many take a block to
    themselves; thousands take several blocks.

    Attributes:
        threads: of one block, for one environment.
        per_block: environments that share a block.
        blocks: blocks that share an environment; a power of two.
        workspace: bytes that an environment in the making needs: the kernel's ``Scratch`` and
            the step's outcome.
    """

    threads: int
    per_block: int
    blocks: int
    workspace: int

    def __str__(self) -> str:
        if self.blocks > 1:
            return f"{self.blocks} blocks of {self.threads} threads"
        if self.per_block > 1:
            return f"{self.threads} threads of a block"
        return f"one block of {self.threads} threads"

    @property
    def in_memory(self) -> bool:
        """Whether the workspace lies in global memory: shared memory is one block's, and small."""
        return self.blocks > 1 or self.workspace > SHARED_BYTES

    @property
    def block_threads(self) -> int:
        """Threads of a block."""
        return self.threads * self.per_block


def choose_team(agents: int, workspace: int, spread: bool = False) -> Team:
    """The team for this many agents; ``spread`` asks for several blocks, however few they are."""
    if spread or agents > MAX_BLOCK_AGENTS:
        wanted = -(-agents // MAX_BLOCK_AGENTS)
        blocks = min(MAX_BLOCKS, max(2, _power_of_two(wanted)))
        return Team(_whole_warps(-(-agents // blocks)), 1, blocks, workspace)
    if agents > WARP:
        return Team(_whole_warps(agents), 1, 1, workspace)
    threads = max(2, _power_of_two(agents))
    room = max(1, SHARED_BYTES // workspace)
    return Team(threads, min(PACKED_THREADS // threads, room), 1, workspace)


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _whole_warps(agents: int) -> int:
    return min(BLOCK_THREADS, WARP * -(-agents // WARP))
