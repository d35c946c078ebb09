"""Regular expressions of subscriptions: RE2's meaning, no way to make the coordinator think for long."""

import random
import re

import pytest

from skidway.errors import InvalidRegularExpression
from skidway.groups.consumer.patterns import PATTERN_LENGTH_MAX, PATTERNS_MAX, Pattern, Patterns


@pytest.mark.parametrize(
    ("regex", "taken", "refused"),
    [
        ("", [""], ["a"]),
        ("abc", ["abc"], ["ab", "abcd", "xabc"]),
        ("a.c", ["abc", "a.c"], ["a\nc", "ac"]),
        (r"a\.c", ["a.c"], ["abc"]),
        ("a|bc|", ["a", "bc", ""], ["abc"]),
        ("(a|b)*c", ["c", "abac"], ["ab"]),
        ("(?:ab)+", ["ab", "abab"], ["", "aba"]),
        ("(?P<name>a)(?<other>b)?", ["a", "ab"], ["b"]),
        ("a{2}", ["aa"], ["a", "aaa"]),
        ("a{2,}b{0,1}", ["aa", "aaaab"], ["ab", "aabb"]),
        ("a{1,3}?", ["a", "aaa"], ["aaaa"]),
        ("a{x}", ["a{x}"], ["a"]),
        ("a{,2}", ["a{,2}"], ["a", "aa"]),
        ("[a-c.]+", ["a.c"], ["d"]),
        ("[^a-c]", ["d", "-"], ["a", ""]),
        ("[]a]", ["]", "a"], ["b"]),
        ("[^]a]", ["b"], ["]", "a"]),
        ("[a-]", ["a", "-"], ["b"]),
        (r"[\d\-x]+", ["1-x"], ["a"]),
        ("[[:alpha:]_]+", ["a_Z"], ["1"]),
        ("[[:^digit:]]", ["a"], ["1"]),
        (r"\w+\W\d\D\s\S", ["ab-1x y"], ["ab-xx y"]),
        (r"\p{Lu}\pN\P{L}", ["A1-"], ["a1-", "A1b"]),
        (r"\x61\x{62}\060", ["ab0"], ["abc"]),
        (r"\Qa.b\E+", ["a.b", "a.bbb"], ["axb"]),
        (r"^topic$", ["topic"], ["a topic"]),
        (r"\Aa\z", ["a"], ["b"]),
        (r".*\bcat\b.*", ["a-cat.b", "cat"], ["acat", "cats"]),
        (r".*\Bcat", ["acat"], ["a-cat"]),
        ("a^b", [], ["ab"]),
        ("(?i)abc", ["aBC"], ["ab"]),
        ("a(?i:b)c", ["aBc"], ["aBC"]),
        ("(?i)a(?-i)b", ["Ab"], ["AB"]),
        ("(?s).", ["\n"], []),
        ("(a(?i)b)c", ["aBc"], ["aBC"]),
        ("(a*)*", ["", "aaa"], ["b"]),
        ("ä|a", ["a"], ["ä", ""]),
        ("[ä-ö]?a", ["a"], ["ä"]),
    ],
)
def test_a_pattern_takes_whole_names(regex: str, taken: list[str], refused: list[str]) -> None:
    pattern = Pattern(regex)
    assert [name for name in taken if not pattern.matches(name)] == []
    assert [name for name in refused if pattern.matches(name)] == []


NO_PATTERNS = [
    *("(", ")", "a)", "[", "[a", "[b-a]", "*", "a**", "a+*", "a{2}{3}", "|*", "\\", r"\1", r"\y", "(?=a)", "(?!a)"),
    *("(?<=a)", "(?<!a)", "(?>a)", "(?P=a)", "(?P<>a)", "a{3,2}", "a{1001}", r"\p{Klingon}", r"\x{}", r"\xg1"),
    *("[[:nothing:]]", r"\x{110000}", "(?z)", "(?", "(" * 200 + ")" * 200, "((a{100}){100}){100}"),
    "a" * (PATTERN_LENGTH_MAX + 1),
]


@pytest.mark.parametrize("regex", NO_PATTERNS)
def test_what_is_no_pattern_is_refused(regex: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        Pattern(regex)


def test_patterns_that_drive_others_mad_are_matched_in_a_moment() -> None:
    for regex in ("(a+)+b", "(a|a)*b", "(a?){100}a{100}b", "(.*)*(.*)*(.*)*b", "(a|aa)+b"):
        pattern = Pattern(regex)
        assert not pattern.matches("a" * 249)
        assert pattern.work < 1_000_000


def test_nothing_repeated_over_and_over_is_nothing() -> None:
    assert Pattern("((((){1000}){1000}){1000}){1000}").matches("")


def test_a_pattern_that_costs_too_much_is_refused_before_anyone_waits() -> None:
    letters = random.Random(1)
    names = ["".join(letters.choice("ab") for _ in range(200)) for _ in range(300)]
    with pytest.raises(InvalidRegularExpression):
        Patterns().check("(a|b)*a(a|b){900}|(a|b)*b(a|b){901}", names)


@pytest.mark.parametrize("seed", range(40))
def test_random_patterns_mean_what_they_mean_elsewhere(seed: int) -> None:
    choose = random.Random(seed)

    def pattern(depth: int) -> str:
        if depth == 0:
            return choose.choice(["a", "b", ".", "[ab]", "[^a]", r"\w", "-", r"\b", "^", "$", ""])
        left, right = pattern(depth - 1), pattern(depth - 1)
        return choose.choice(
            [left + right, f"(?:{left}|{right})", f"(?:{left})*{right}", f"(?:{left})?", f"(?:{left}){{1,2}}"]
        )

    for _ in range(30):
        regex = pattern(choose.randrange(1, 4))
        ours, theirs = Pattern(regex), re.compile(regex, re.ASCII)
        for _ in range(20):
            name = "".join(choose.choice("ab-") for _ in range(choose.randrange(6)))
            assert ours.matches(name) == bool(theirs.fullmatch(name)), (regex, name)


def test_names_are_looked_through_once_while_they_stay_the_same() -> None:
    patterns = Patterns()
    assert patterns.taken("a.*", ["a", "ab", "b"], 1) == {"a", "ab"}
    assert patterns.taken("a.*", [], 1) == {"a", "ab"}
    assert patterns.taken("a.*", ["ac"], 2) == {"ac"}
    assert patterns.taken("(", ["a"], 1) == frozenset()
    assert not patterns.matches("(", "(")


def test_a_new_topic_does_not_cost_as_much_as_all_topics() -> None:
    patterns = Patterns()
    names = [f"orders-{number}" for number in range(2_000)]
    assert len(patterns.taken("orders-.*", names, 1)) == 2_000
    pattern = patterns._kept["orders-.*"].pattern
    assert pattern is not None
    work = pattern.work
    assert len(patterns.taken("orders-.*", [*names[1:], "orders-x", "x"], 2)) == 2_000
    assert pattern.work - work < 100
    assert patterns.matches("orders-.*", "orders-x")
    assert patterns.matches("orders-.*", "orders-y")
    assert not patterns.matches("orders-.*", "x")


def test_patterns_without_end_are_forgotten_again() -> None:
    patterns = Patterns()
    names = [f"t{number}" for number in range(50)]
    for number in range(PATTERNS_MAX + 500):
        patterns.check(f"t{number}|.*", names)
    assert len(patterns._kept) <= PATTERNS_MAX
    assert patterns._weight == sum(kept.weight for kept in patterns._kept.values())
    assert patterns.taken("t0|.*", names, 1) == set(names)
