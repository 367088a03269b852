"""Finds entries in logs, tracebacks and messages: a stream of any size, one pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import BinaryIO

from .model import Entry
from .store import KnowledgeBase

PIECE = 1 << 20


class MatcherMissing(RuntimeError):
    """The extension was built without RE2."""


@dataclasses.dataclass(frozen=True)
class Match:
    """An entry, and where it was first found."""

    entry: Entry
    line: int
    count: int
    text: str
    groups: dict[str, str]


class EntryMatcher:
    """All entries of a knowledge base, ready to be looked for."""

    def __init__(self, base: KnowledgeBase) -> None:
        try:
            from .. import _kb
        except ImportError as error:
            raise MatcherMissing(
                "kintsugi was built without RE2, which matching needs: install libre2-dev and build again "
                f"({error})"
            ) from None
        self._entries: list[Entry] = []
        self.problems: list[str] = []
        for entry in base:
            try:
                _kb.Matcher([entry.regex])
            except ValueError as error:
                self.problems.append(f"{base.files[entry.id]}: regex: {error}")
                continue
            self._entries.append(entry)
        self._matcher = _kb.Matcher([entry.regex for entry in self._entries])

    def match_pieces(self, pieces: Iterable[bytes]) -> list[Match]:
        scan = self._matcher.scan()
        for piece in pieces:
            scan.feed(piece)
        return [
            Match(self._entries[hit["pattern"]], hit["line"], hit["count"], hit["text"], hit["groups"])
            for hit in scan.finish()
        ]

    def match_text(self, text: str) -> list[Match]:
        return self.match_pieces([text.encode("utf-8", "surrogateescape")])

    def match_file(self, file: BinaryIO, progress: Callable[[int], None] = lambda size: None) -> list[Match]:
        def pieces() -> Iterable[bytes]:
            while piece := file.read(PIECE):
                progress(len(piece))
                yield piece

        return self.match_pieces(pieces())
