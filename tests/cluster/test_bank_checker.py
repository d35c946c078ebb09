"""The check of the bank's books finds each thing that can be wrong with them."""

import pytest
from bank import PLACES, Book, Notes, Place, Transfer, order_of, problems

Logs = dict[Place, dict[int, bytes]]


class Story:
    """Two branches that carried out three orders each, with an aborted attempt before each."""

    def __init__(self) -> None:
        self.logs: Logs = {place: {} for place in PLACES}
        self.notes = [Notes(), Notes()]
        self.offsets = {0: 3, 1: 3}
        for branch in (0, 1):
            for order in range(3):
                self.notes[branch].aborted.add(Transfer(branch, order, 1))
                self.notes[branch].committed.add(Transfer(branch, order, 2))
                self.write(Transfer(branch, order, 2))

    def write(self, transfer: Transfer, *legs: int) -> None:
        entries = transfer.entries(order_of(transfer.branch, transfer.order))
        for leg in legs or (0, 1):
            place, value = entries[leg]
            self.logs[place][2 * len(self.logs[place])] = value

    def erase(self, transfer: Transfer, *legs: int) -> None:
        entries = transfer.entries(order_of(transfer.branch, transfer.order))
        for leg in legs or (0, 1):
            place, value = entries[leg]
            self.logs[place] = {offset: kept for offset, kept in self.logs[place].items() if kept != value}

    def wrong(self) -> set[str]:
        """The kinds of problems."""
        found = problems(Book().enter_all(self.logs), self.notes, self.offsets)
        return {problem.partition(":")[0] for problem in found}


@pytest.fixture
def story() -> Story:
    return Story()


def test_right_books_are_right(story: Story) -> None:
    assert story.wrong() == set()


@pytest.mark.parametrize("leg", [0, 1])
def test_half_a_transfer_is_torn_and_changes_the_sum(story: Story, leg: int) -> None:
    story.erase(Transfer(0, 1, 2), leg)
    assert story.wrong() == {"torn", "sum"}


def test_a_commit_that_is_not_there_is_lost(story: Story) -> None:
    story.erase(Transfer(1, 2, 2))
    assert story.wrong() == {"lost", "offsets"}


def test_what_was_aborted_is_seen(story: Story) -> None:
    story.write(Transfer(1, 2, 1))
    assert story.wrong() == {"aborted", "strange", "twice"}


def test_half_of_what_was_aborted_is_seen(story: Story) -> None:
    story.write(Transfer(1, 2, 1), 1)
    assert {"aborted", "torn", "sum"} <= story.wrong()


def test_an_entry_that_is_there_twice(story: Story) -> None:
    story.write(Transfer(0, 0, 2), 0)
    assert story.wrong() == {"twice", "sum"}


def test_an_order_that_was_carried_out_twice(story: Story) -> None:
    again = Transfer(0, 0, 3)
    story.notes[0].committed.add(again)
    story.write(again)
    assert story.wrong() == {"twice"}


@pytest.mark.parametrize("offset", [2, 4])
def test_an_offset_that_is_not_that_of_the_output(story: Story, offset: int) -> None:
    story.offsets[1] = offset
    assert story.wrong() == {"offsets"}


def test_a_record_that_is_read_twice() -> None:
    book = Book()
    (place, value), _ = Transfer(0, 0, 1).entries(order_of(0, 0))
    book.enter(place, 5, value)
    book.enter(place, 5, value)
    assert [problem.partition(":")[0] for problem in book.wrong] == ["twice"]


def test_an_entry_in_the_wrong_book() -> None:
    book = Book()
    (place, value), _ = Transfer(0, 0, 1).entries(order_of(0, 0))
    book.enter(next(other for other in PLACES if other != place), 0, value)
    assert [problem.partition(":")[0] for problem in book.wrong] == ["strange"]


@pytest.mark.parametrize(("next_order", "there", "wrong"), [(4, True, set()), (3, False, set()), (4, False, {"lost"})])
def test_what_nobody_answered_is_settled_by_the_offset(
    story: Story, next_order: int, there: bool, wrong: set[str]
) -> None:
    story.notes[0].unknown.add(Transfer(0, 3, 1))
    story.notes[0].settle(next_order)
    if there:
        story.write(Transfer(0, 3, 1))
        story.offsets[0] = 4
    assert story.wrong() == wrong


def test_what_the_offset_says_was_not_done_is_there(story: Story) -> None:
    story.notes[0].unknown.add(Transfer(0, 3, 1))
    story.notes[0].settle(3)
    story.write(Transfer(0, 3, 1))
    assert {"aborted", "offsets"} <= story.wrong()
