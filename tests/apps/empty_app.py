"""Which application knows nothing that the others do?"""

from __future__ import annotations

from redisworld import Workflows

wf = Workflows()


@wf.workflow
async def unrelated() -> None:
    """So that it has something."""
