"""A rule as the text of a label, as a person would say it.

The text names every item the rule checks, so that a label's score is the score of what its reader was told. When the
items do not fit 15 words and 120 characters, `fitting` drops the last ones from the rule itself.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import replace

from neuroscope.autointerp.classes import WORD_LISTS, word_list
from neuroscope.autointerp.rules import Rule
from neuroscope.autointerp.words import BROKEN
from neuroscope.labels import refusal

FUNCTION_WORDS: frozenset[str] = frozenset().union(
    *(
        WORD_LISTS[name]
        for name in (
            "articles",
            "prepositions",
            "conjunctions",
            "personal pronouns",
            "possessives",
            "question words",
            "demonstratives",
            "forms of be",
            "modal verbs",
            "forms of have",
            "negations",
            "quantity words",
            "number words",
            "ordinals",
        )
    ),
    word_list(
        "also as there then than do does did such other only just very out up down off again ever often being "
        "including known used since called well made based part even however"
    ),
)
"""Words that no text is about."""

CODE_WORDS = word_list(
    "def elif self args kwargs none str int isinstance lambda assert except async await repr init dict param func "
    "len bool tuple stdout stderr stdin sys os lineno errno cls import else return yield raise try append obj var "
    "const typedef printf struct void println enum true false classmethod filename href div attr getattr setattr "
    "typeerror valueerror keyerror oserror exc argv ascii bytes bytearray iter"
)
"""Words that are at home in code."""

_BLANKS = {"\n": "line break", "\t": "tab"}


def quoted(item: str) -> str:
    """`item` between quotes; blanks and signs that cannot be shown so are called by their names."""
    if item in _BLANKS:
        return _BLANKS[item]
    if item and item.isspace():
        return "space" if len(item) == 1 else f"{len(item)} spaces"
    shown = f"'{item}'" if '"' in item else f'"{item}"'
    if refusal(shown) is None:
        return shown
    parts = re.findall(r"[^\W_]{1,20}|.", item, re.DOTALL)[:3]
    return " ".join(f'"{part}"' if part.isalnum() else _sign_name(part) for part in parts)


def _sign_name(character: str) -> str:
    name = _BLANKS.get(character) or unicodedata.name(character, "").lower()
    return name or f"U+{ord(character):04X}"


def merged(items: Sequence[str]) -> list[str]:
    """Items as they are shown: a word and its plural are one."""
    folded = {item.casefold() for item in items}
    shown = []
    for item in items:
        fold = item.casefold()
        if fold.endswith("s") and len(fold) > 3 and fold[:-1] in folded:
            continue
        plural = len(fold) > 2 and fold.isalpha() and fold + "s" in folded
        shown.append(quoted(f"{item}(s)" if plural else item))
    return shown


def _listed(rule: Rule) -> str:
    return ", ".join(merged(rule.items))


def is_topic(word: str) -> bool:
    """Whether a word can stand for what a text is about."""
    return len(word) > 2 and word.isalpha() and word.casefold() not in FUNCTION_WORDS


def _surroundings(rule: Rule) -> str:
    if all(map(is_topic, rule.items)):
        in_code = 3 * sum(item.casefold() in CODE_WORDS for item in rule.items) >= len(rule.items)
        named = ", ".join(item.strip('"') for item in merged(rule.items))
        return f"in code with {named}" if in_code else f"in texts on {named}"
    return f"near {_listed(rule)}"


def _case(rule: Rule) -> str:
    if not rule.cased:
        return ""
    if all(item.isupper() and len(item) > 1 for item in rule.items):
        return " (in capitals)"
    if all(item[:1].isupper() for item in rule.items):
        return " (capitalised)"
    if all(item.islower() for item in rule.items):
        return " (in lower case)"
    return " (as written)"


_TEMPLATES = {
    "word": "{items}{case}",
    "piece": "word piece{s} {items}",
    "prefix": "words starting with {items}",
    "suffix": "words ending in {items}",
    "after": "token after {items}",
    "before": "token before {items}",
    "any": "almost every token",
}


def _base(rule: Rule) -> str:
    if rule.kind == "class":
        return rule.items[0]
    if rule.kind == "context":
        return _surroundings(rule)
    template = "say {items} next" if rule.predicted else _TEMPLATES[rule.kind]
    if rule.kind == "piece" and all(map(str.isdecimal, rule.items)):
        template = "digit{s} {items} in numbers"
    return template.format(items=_listed(rule), case=_case(rule), s="s" if len(rule.items) > 1 else "")


def _condition(rule: Rule) -> str:
    if rule.kind == "context":
        return _surroundings(rule)
    if rule.kind in ("after", "before"):
        return f"{rule.kind} {_listed(rule)}"
    if rule.items == ("first words of sentences",):
        return "at the start of a sentence"
    return f"in {_base(rule)}"


def describe(rule: Rule, examples: Sequence[str] = ()) -> str:
    """The label of a rule. `examples` are words that satisfy it, shown in brackets while there is room."""
    also = rule.also
    base = replace(rule, also=None)
    text = _base(base) if also is None else f"{_base(base)} {_condition(also)}"
    for count in range(len(examples), 0, -1):
        longer = f"{text} ({', '.join(examples[:count])})"
        if refusal(longer) is None:
            return longer
    return text


def fitting(rule: Rule) -> Rule:
    """`rule` with as many of its items as a label has room for."""
    while refusal(describe(rule)) is not None:
        also = rule.also
        if also is not None and len(also.items) >= max(len(rule.items), 2):
            rule = replace(rule, also=replace(also, items=also.items[:-1]))
        elif len(rule.items) > 1:
            rule = replace(rule, items=rule.items[:-1])
        elif also is not None:
            rule = replace(rule, also=None)
        else:
            return Rule("any")
    return rule


def readable(word: str) -> bool:
    """Whether a word can be shown as an example: letters or digits, nothing broken."""
    return bool(re.fullmatch(r"[^\W_]{2,24}", word)) and BROKEN not in word


def distinct(words: Iterable[str]) -> list[str]:
    """`words` in order, each once whatever its case."""
    found: dict[str, str] = {}
    for word in words:
        found.setdefault(word.casefold(), word)
    return list(found.values())
