"""Regular expressions for topic names, in the syntax of RE2, matched in time proportional to the name.

A pattern becomes a small automaton that is followed in all its states at once: there is no backtracking to blow up.
What RE2 does not have (references, looking around) is refused, as is a pattern that grows too large when its counted
repetitions are written out. Names are ASCII; other characters may stand in a pattern and match nothing.
"""

from collections.abc import Iterable

from msgspec import Struct, field

from skidway.errors import InvalidRegularExpression

PATTERN_LENGTH_MAX = 8_192
STATES_MAX = 10_000
WORK_MAX = 500_000
"""States to visit while one pattern is matched with all topics: about a tenth of a second."""
PATTERNS_MAX = 1_000
KEPT_WEIGHT_MAX = 2_000_000
"""Compiled patterns to keep; the states of all of them and the names that they take."""
PER_GROUP_MAX = 20
"""Different patterns in one group. Members of a group mostly have one; while they are replaced, two."""
REPEAT_MAX = 1_000
DEPTH_MAX = 100
CACHE_MAX = 50_000
"""States remembered in ways already gone."""

ASCII = (1 << 128) - 1
NEVER = 1 << 128
"""Of a state that reads a character no name has; a state without a mask reads nothing at all."""


def _mask(*ranges: str) -> int:
    """Of ranges like "az" and single characters."""
    mask = 0
    for each in ranges:
        for code in range(ord(each[0]), ord(each[-1]) + 1):
            mask |= 1 << code
    return mask


_DIGIT, _SPACE, _WORD = _mask("09"), _mask("\t", "\n", "\f", "\r", " "), _mask("09", "AZ", "az", "_")
_UPPER, _LOWER = _mask("AZ"), _mask("az")
_NEWLINE = _mask("\n")
_PUNCTUATION = _mask("!/", ":@", "[`", "{~")
_CLASSES = {"d": _DIGIT, "s": _SPACE, "w": _WORD}
_POSIX = {
    "alnum": _DIGIT | _UPPER | _LOWER,
    "alpha": _UPPER | _LOWER,
    "ascii": ASCII,
    "blank": _mask(" ", "\t"),
    "cntrl": _mask("\x00\x1f", "\x7f"),
    "digit": _DIGIT,
    "graph": _mask("!~"),
    "lower": _LOWER,
    "print": _mask(" ~"),
    "punct": _PUNCTUATION,
    "space": _SPACE | _mask("\v"),
    "upper": _UPPER,
    "word": _WORD,
    "xdigit": _mask("09", "AF", "af"),
}
_UNICODE = {"L": _UPPER | _LOWER, "Lu": _UPPER, "Ll": _LOWER, "N": _DIGIT, "Nd": _DIGIT}
_CONTROL = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}


def _both_cases(mask: int) -> int:
    return mask | (mask & _UPPER) << 32 | (mask & _LOWER) >> 32


# What a pattern is made of.


class _Char(Struct):
    mask: int


class _Assertion(Struct):
    kind: str
    """One of ^ $ A z b B."""


class _Sequence(Struct):
    parts: list["_Node"]


class _Choice(Struct):
    parts: list["_Node"]


class _Repeat(Struct):
    part: "_Node"
    least: int
    most: int | None


_Node = _Char | _Assertion | _Sequence | _Choice | _Repeat


class _Flags(Struct):
    any_case: bool = False
    dot_takes_newline: bool = False
    many_lines: bool = False


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._flags = _Flags()

    def parse(self) -> _Node:
        node = self._choice()
        if self._at < len(self._text):
            raise self._invalid("unexpected )")
        return node

    def _invalid(self, why: str) -> InvalidRegularExpression:
        return InvalidRegularExpression(f"The regular expression {self._text[:200]!r} is not valid: {why}.")

    def _peek(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _take(self, text: str) -> bool:
        found = self._peek(text)
        if found:
            self._at += len(text)
        return found

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise self._invalid("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _until(self, end: str) -> str:
        found = self._text.find(end, self._at)
        if found < 0:
            raise self._invalid(f"missing {end}")
        text = self._text[self._at : found]
        self._at = found + len(end)
        return text

    def _choice(self) -> _Node:
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else _Choice(parts)

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._at < len(self._text) and not self._peek("|") and not self._peek(")"):
            if self._take("\\Q"):
                end = self._text.find("\\E", self._at)
                quoted = self._text[self._at : end if end >= 0 else len(self._text)]
                self._at += len(quoted) + (2 if end >= 0 else 0)
                parts += [self._literal(char) for char in quoted]
                if not quoted:
                    continue
            else:
                atom = self._atom()
                if atom is None:
                    continue
                parts.append(atom)
            parts[-1] = self._repeated(parts[-1])
        return _Sequence(parts)

    def _repeated(self, part: _Node) -> _Node:
        bounds = self._repetition()
        if bounds is None:
            return part
        self._take("?")
        if self._repetition() is not None:
            raise self._invalid("a repetition of a repetition")
        return _Repeat(part, *bounds)

    def _repetition(self) -> tuple[int, int | None] | None:
        if self._take("*"):
            return 0, None
        if self._take("+"):
            return 1, None
        if self._take("?"):
            return 0, 1
        return self._counted() if self._peek("{") else None

    def _counted(self) -> tuple[int, int | None] | None:
        """A brace that is no repetition is a brace."""
        end = self._text.find("}", self._at)
        least, comma, most = self._text[self._at + 1 : end].partition(",") if end > 0 else ("", "", "")
        if not _is_number(least) or (most and not _is_number(most)):
            return None
        self._at = end + 1
        first = _bounded(least)
        last = first if not comma else _bounded(most) if most else None
        if first > REPEAT_MAX or (last is not None and (last > REPEAT_MAX or last < first)):
            raise self._invalid("bad bounds of a repetition")
        return first, last

    def _literal(self, char: str) -> _Char:
        mask = 1 << ord(char) if ord(char) < 128 else 0
        return _Char(_both_cases(mask) if self._flags.any_case else mask)

    def _atom(self) -> _Node | None:
        char = self._next()
        match char:
            case "(":
                return self._group()
            case "[":
                return self._class()
            case ".":
                return _Char(ASCII if self._flags.dot_takes_newline else ASCII & ~_NEWLINE)
            case "^":
                return _Assertion("^" if self._flags.many_lines else "A")
            case "$":
                return _Assertion("$" if self._flags.many_lines else "z")
            case "*" | "+" | "?":
                raise self._invalid("nothing to repeat")
            case "\\":
                return self._escape()
        return self._literal(char)

    def _group(self) -> _Node | None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._invalid("too many groups within groups")
        before = self._flags
        if self._take("?P<") or self._take("?<"):
            name = self._until(">")
            if not name or not name.isascii() or not name.replace("_", "a").isalnum():
                raise self._invalid("bad name of a group")
        elif self._take("?"):
            for_the_rest = self._set_flags()
            if for_the_rest:
                self._depth -= 1
                return None
        node = self._choice()
        if not self._take(")"):
            raise self._invalid("missing )")
        self._flags = before
        self._depth -= 1
        return node

    def _set_flags(self) -> bool:
        """Whether they hold for the rest of the group around, and not for a group of their own."""
        flags = _Flags(self._flags.any_case, self._flags.dot_takes_newline, self._flags.many_lines)
        value = True
        while True:
            match self._next():
                case "i":
                    flags.any_case = value
                case "s":
                    flags.dot_takes_newline = value
                case "m":
                    flags.many_lines = value
                case "U":
                    pass
                case "-" if value:
                    value = False
                case ":":
                    self._flags = flags
                    return False
                case ")":
                    self._flags = flags
                    return True
                case _:
                    raise self._invalid("groups of this kind are not supported")

    def _escape(self) -> _Node:
        char = self._next()
        if char in "Az":
            return _Assertion(char)
        if char in "bB":
            return _Assertion(char)
        mask = self._escaped_class(char)
        if mask is not None:
            return _Char(mask)
        return self._literal(self._escaped_char(char))

    def _escaped_class(self, char: str) -> int | None:
        if char in _CLASSES:
            return _CLASSES[char]
        if char.lower() in _CLASSES:
            return ASCII & ~_CLASSES[char.lower()]
        if char not in "pP":
            return None
        name = self._until("}") if self._take("{") else self._next()
        inverted = (char == "P") != name.startswith("^")
        mask = _UNICODE.get(name.removeprefix("^"))
        if mask is None:
            raise self._invalid("unknown class of characters")
        return ASCII & ~mask if inverted else mask

    def _escaped_char(self, char: str) -> str:
        if char in _CONTROL:
            return _CONTROL[char]
        if char == "x":
            digits = self._until("}") if self._take("{") else self._next() + self._next()
            return self._code(digits, 16)
        if char == "0":
            digits = char
            while len(digits) < 3 and self._text[self._at : self._at + 1] in set("01234567"):
                digits += self._next()
            return self._code(digits, 8)
        if char.isascii() and char.isalnum():
            raise self._invalid(f"unknown escape \\{char}")
        return char

    def _code(self, digits: str, base: int) -> str:
        if not digits or len(digits) > 8 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
            raise self._invalid("bad code of a character")
        code = int(digits, base)
        if code > 0x10FFFF:
            raise self._invalid("bad code of a character")
        return chr(code)

    def _class(self) -> _Node:
        inverted = self._take("^")
        mask, first = 0, True
        while first or not self._take("]"):
            first = False
            mask |= self._class_part()
        if self._flags.any_case:
            mask = _both_cases(mask)
        return _Char(ASCII & ~mask if inverted else mask)

    def _class_part(self) -> int:
        if self._take("[:"):
            name = self._until(":]")
            posix = _POSIX.get(name.removeprefix("^"))
            if posix is None:
                raise self._invalid("unknown class of characters")
            return ASCII & ~posix if name.startswith("^") else posix
        char = self._next()
        if char == "\\":
            escaped = self._next()
            mask = self._escaped_class(escaped)
            if mask is not None:
                return mask
            char = self._escaped_char(escaped)
        low = high = ord(char)
        if self._peek("-") and not self._peek("-]"):
            self._at += 1
            end = self._next()
            high = ord(self._escaped_char(self._next()) if end == "\\" else end)
        if high < low:
            raise self._invalid("bad range of characters")
        return ((1 << min(high, 127) + 1) - (1 << low)) if low < 128 else 0


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _bounded(digits: str) -> int:
    return int(digits) if len(digits) < 9 else REPEAT_MAX + 1


class _Automaton(Struct):
    """State 0 is the end. A state reads a character (mask, one way on), asserts, or splits."""

    masks: list[int] = field(default_factory=lambda: [0])
    assertions: list[str] = field(default_factory=lambda: [""])
    ways: list[list[int]] = field(default_factory=lambda: [[]])

    def add(self, mask: int, assertion: str, ways: list[int]) -> int:
        if len(self.ways) >= STATES_MAX:
            raise InvalidRegularExpression("The regular expression is too large.")
        self.masks.append(mask)
        self.assertions.append(assertion)
        self.ways.append(ways)
        return len(self.ways) - 1

    def build(self, node: _Node, follow: int) -> int:
        """The state where the node begins, when `follow` comes after it."""
        match node:
            case _Char(mask):
                return self.add(mask or NEVER, "", [follow])
            case _Assertion(kind):
                return self.add(0, kind, [follow])
            case _Sequence(parts):
                for part in reversed(parts):
                    follow = self.build(part, follow)
                return follow
            case _Choice(parts):
                return self.add(0, "", [self.build(part, follow) for part in parts])
            case _Repeat(part, least, most):
                return self._repeat(part, least, most, follow)

    def _repeat(self, part: _Node, least: int, most: int | None, follow: int) -> int:
        if most is None:
            loop = self.add(0, "", [follow])
            self.ways[loop].append(self.build(part, loop))
            follow = loop
        else:
            end = follow
            for _ in range(most - least):
                follow = self.add(0, "", [end, self.build(part, follow)])
        for _ in range(least):
            begin = self.build(part, follow)
            if begin == follow:
                # Nothing, however often, is nothing.
                break
            follow = begin
        return follow


class Pattern:
    """`work` counts the states visited so far: a caller can give up on a pattern that costs too much."""

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_LENGTH_MAX:
            raise InvalidRegularExpression("The regular expression is too long.")
        self._automaton = _Automaton()
        self._start = frozenset([self._automaton.build(_Parser(text).parse(), 0)])
        self._known: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}
        self._known_states = 0
        self.work = 0

    @property
    def states(self) -> int:
        return len(self._automaton.ways)

    def forget(self) -> None:
        """The ways already gone: they were of use among many names, and take more room than the pattern."""
        self._known.clear()
        self._known_states = 0

    def matches(self, name: str) -> bool:
        """The whole name."""
        states, before = self._start, ""
        if not name.isascii():
            return False
        for char in name:
            key = (states, before, char)
            following = self._known.get(key)
            if following is None:
                following = self._remember(key)
            if not following:
                return False
            states = following
            before = "w" if _WORD >> ord(char) & 1 else "\n" if char == "\n" else "-"
        return 0 in self._reachable(states, before, "")

    def _remember(self, key: tuple[frozenset[int], str, str]) -> frozenset[int]:
        states, before, char = key
        code, masks, ways = ord(char), self._automaton.masks, self._automaton.ways
        reachable = self._reachable(states, before, char)
        following = frozenset(ways[state][0] for state in reachable if masks[state] >> code & 1)
        if self._known_states > CACHE_MAX:
            self._known.clear()
            self._known_states = 0
        self._known_states += len(following) + 1
        self._known[key] = following
        return following

    def _reachable(self, states: frozenset[int], before: str, after: str) -> set[int]:
        """Without reading a character."""
        automaton = self._automaton
        reached, todo = set(states), list(states)
        while todo:
            state = todo.pop()
            if automaton.masks[state] or not _holds(automaton.assertions[state], before, after):
                continue
            for way in automaton.ways[state]:
                if way not in reached:
                    reached.add(way)
                    todo.append(way)
        self.work += len(reached)
        return reached


def _holds(assertion: str, before: str, after: str) -> bool:
    match assertion:
        case "":
            return True
        case "A":
            return not before
        case "z":
            return not after
        case "^":
            return before in ("", "\n")
        case "$":
            return after in ("", "\n")
    after_is_word = bool(after) and bool(_WORD >> ord(after) & 1)
    at_border = (before == "w") != after_is_word
    return at_border if assertion == "b" else not at_border


class _Kept(Struct):
    """A pattern, and which of the names that it was shown it takes."""

    pattern: Pattern | None
    """None when it cannot be compiled: one that another broker took has to be lived with."""
    epoch: int | None = None
    seen: frozenset[str] = frozenset()
    taken: frozenset[str] = frozenset()

    @property
    def weight(self) -> int:
        return len(self.taken) + (1 if self.pattern is None else self.pattern.states)


class Patterns:
    """Compiled patterns and what they take, remembered; the one not used for longest goes first. A pattern is only
    matched with names it was not shown before, so that a new topic does not cost as much as all topics."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._weight = 0
        self._names: tuple[int, frozenset[str]] | None = None

    def check(self, regex: str, names: Iterable[str]) -> None:
        """Raises InvalidRegularExpression for what cannot be compiled, or costs too much to match."""
        known = self._kept.get(regex)
        if known is not None and known.pattern is not None and known.epoch is not None:
            return
        kept = _Kept(Pattern(regex))
        if not self._look(kept, frozenset(names)):
            raise InvalidRegularExpression("The regular expression takes too long to match.")
        self._keep(regex, kept)

    def matches(self, regex: str, name: str) -> bool:
        kept = self._known(regex)
        if name in kept.seen:
            return name in kept.taken
        return kept.pattern is not None and bool(_search(kept.pattern, [name])[0])

    def taken(self, regex: str, names: Iterable[str], epoch: int) -> frozenset[str]:
        """Those of the names that the pattern takes; `epoch` changes when the names do."""
        kept = self._known(regex)
        if kept.epoch != epoch:
            if self._names is None or self._names[0] != epoch:
                self._names = (epoch, frozenset(names))
            self._weight -= kept.weight
            self._look(kept, self._names[1])
            self._weight += kept.weight
            kept.epoch = epoch
        return kept.taken

    def _known(self, regex: str) -> _Kept:
        kept = self._kept.pop(regex, None)
        if kept is None:
            try:
                kept = _Kept(Pattern(regex))
            except InvalidRegularExpression:
                kept = _Kept(None)
            self._keep(regex, kept)
        else:
            self._kept[regex] = kept
        return kept

    def _keep(self, regex: str, kept: _Kept) -> None:
        replaced = self._kept.pop(regex, None)
        self._weight += kept.weight - (0 if replaced is None else replaced.weight)
        while self._kept and (self._weight > KEPT_WEIGHT_MAX or len(self._kept) >= PATTERNS_MAX):
            self._weight -= self._kept.pop(next(iter(self._kept))).weight
        self._kept[regex] = kept

    @staticmethod
    def _look(kept: _Kept, names: frozenset[str]) -> bool:
        """Show it the names there are now; false if there was no time for all of them."""
        pattern, taken, in_time = kept.pattern, kept.taken & names, True
        if pattern is not None:
            found, in_time = _search(pattern, names - kept.seen)
            taken |= found
        kept.seen, kept.taken = names, taken
        return in_time


def _search(pattern: Pattern, names: Iterable[str]) -> tuple[frozenset[str], bool]:
    """Which are taken, and whether there was time for all."""
    taken: set[str] = set()
    end = pattern.work + WORK_MAX
    for name in sorted(names):
        if pattern.work > end:
            break
        if pattern.matches(name):
            taken.add(name)
    in_time = pattern.work <= end
    pattern.forget()
    return frozenset(taken), in_time
