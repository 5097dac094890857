"""Links without an engine: agents in this process, asked through the real frames, and ways for them to fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpdp.federation.frames import UNREACHABLE, Frame

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rpdp.deployment.agent.agent import Agent


class Local:
    """A `Link` to agents in this process, one address each.

    Attributes:
        agents: By address; None is an address whose agent cannot be reached.
        names: Which silo the engine knows to be at an address; none by default.
        hidden: Addresses that are not to be seen now.
    """

    def __init__(self, agents: Mapping[str, Agent | None]) -> None:
        self.agents = dict(agents)
        self.names: dict[str, str] = {}
        self.hidden: set[str] = set()
        self.asked: list[tuple[str, str]] = []

    def addresses(self) -> dict[str, str]:
        return {address: self.names.get(address, "") for address in self.agents if address not in self.hidden}

    def ask(self, requests: Mapping[str, bytes], timeout: float) -> dict[str, bytes]:
        assert timeout > 0.0
        return {address: answer for address, sent in requests.items() if (answer := self._one(address, sent))}

    def _one(self, address: str, sent: bytes) -> bytes | None:
        agent = self.agents[address]
        if agent is None:
            return UNREACHABLE.to_bytes()
        request = Frame.from_bytes(sent, agent.most_payload)
        self.asked.append((address, request.kind))
        return self.answered(address, request, lambda: agent.answer(request)).to_bytes()

    def answered(self, address: str, request: Frame, answer: Callable[[], Frame]) -> Frame:
        """One answer; for tests to change."""
        return answer()
