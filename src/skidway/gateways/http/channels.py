"""Channels to other nodes for questions that may wait long, each for one question at a time.

Answers on a channel come in the order of the questions, so one that waits holds up all behind it.
"""

CHANNELS_PER_NODE = 16


class WaitingChannels:
    __slots__ = ("_taken",)

    def __init__(self) -> None:
        self._taken: dict[int, set[int]] = {}

    def take(self, node_id: int) -> int | None:
        """The number of a free one, if there is any."""
        taken = self._taken.setdefault(node_id, set())
        number = next((each for each in range(CHANNELS_PER_NODE) if each not in taken), None)
        if number is not None:
            taken.add(number)
        return number

    def give_back(self, node_id: int, number: int) -> None:
        self._taken[node_id].remove(number)
