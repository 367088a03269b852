"""The sentences of a real text that every Python ships: the language reference behind `help()`."""

from __future__ import annotations

import re

# A whole word before the point, then a capital: "i.e." and "3.11" end no sentence.
_END = re.compile(r"(?<=[a-z)\"”’]{2}[.!?])\s+(?=[A-Z“\"])")
_MARKUP = re.compile(r"^\s*(\*{3,}|={3,}|-{3,}|>>>|\.\.\.)|::=|^\s*#")


def _paragraphs(topic: str) -> list[str]:
    """Blocks of prose: no headings, grammar or code."""
    blocks = re.split(r"\n\s*\n", topic)
    return [" ".join(block.split()) for block in blocks if not any(map(_MARKUP.search, block.splitlines()))]


TOPICS = (
    "assert", "bltin-ellipsis-object", "booleans", "break", "class", "context-managers", "continue", "del", "dict",
    "exceptions", "for", "global", "if", "import", "in", "lambda", "lists", "nonlocal", "pass", "raise", "return",
    "truth", "try", "while", "with", "yield", "function", "typesmethods", "numbers", "strings", "string-methods",
)  # fmt: skip


def sentences(most: int) -> list[tuple[str, str]]:
    """(topic, sentence) pairs in the order of the text, without repetitions, taken evenly from TOPICS."""
    from pydoc_data.topics import topics

    found: dict[str, str] = {}
    for name in TOPICS:
        for paragraph in _paragraphs(topics[name]):
            for sentence in _END.split(paragraph):
                plain = sentence.replace('"', "").strip()
                if 45 <= len(plain) <= 170 and plain[0].isupper() and plain[-1] in ".!?":
                    found.setdefault(plain, name)
    every = [(topic, sentence) for sentence, topic in found.items()]
    step = max(1.0, len(every) / most)
    return [every[int(index * step)] for index in range(min(most, len(every)))]
