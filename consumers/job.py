"""What is a message that is responsible for its run, while a worker works on it?"""

from __future__ import annotations

import msgspec

from redisworld.messages import StepMessage, WorkflowMessage
from redisworld.workflows import Workflow
from redisworld.world import Delivery


class Job(msgspec.Struct, frozen=True):
    """One responsible message at work."""

    delivery: Delivery
    message: StepMessage | WorkflowMessage
    workflow: Workflow[..., object]
    trigger: str

    @property
    def run_id(self) -> str:
        return self.message.run_id

    @property
    def where(self) -> dict[str, object]:
        """The fields of every line about it."""
        return {"run": self.run_id, "workflow": self.workflow.name}

    @property
    def is_wake(self) -> bool:
        return isinstance(self.message, WorkflowMessage)
