"""Reads entries from the package and from the user's own folders."""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import ValidationError

from .._text import printable_parts
from .model import Entry

ENTRIES = Path(__file__).parent / "entries"
REPRODUCERS = Path(__file__).parent / "reproducers"


class UnknownEntry(KeyError):
    """No entry has this id."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclasses.dataclass
class KnowledgeBase:
    """Entries by id, and one sentence for each file that could not be used."""

    entries: dict[str, Entry]
    problems: list[str]
    files: dict[str, Path]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries.values())

    def __len__(self) -> int:
        return len(self.entries)

    def find(self, name: str) -> Entry:
        """By id, alias, error code, or the part of the id after the slash."""
        if name in self.entries:
            return self.entries[name]
        wanted = name.lower()
        for entry in self:
            names = {entry.id.partition("/")[2], *(a.lower() for a in entry.aliases)}
            if entry.error_code:
                names.add(entry.error_code.lower())
            if wanted in names:
                return entry
        close = difflib.get_close_matches(name, self.entries, 1, 0.5)
        hint = f" Did you mean {close[0]}?" if close else " `kintsugi kb list` shows all."
        raise UnknownEntry(f"there is no entry {name!r}.{hint}")


def read_entry(path: Path) -> Entry:
    """Raises ValueError with one sentence about what is wrong."""
    try:
        if not path.is_file():  # a pipe would never end
            raise ValueError(f"{path}: not a file")
        return Entry.model_validate(printable_parts(json.loads(path.read_text(encoding="utf-8"))))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except RecursionError:
        raise ValueError(f"{path}: nested too deep") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not JSON, line {error.lineno}: {error.msg}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the entry"
        raise ValueError(f"{path}: {where}: {first['msg']}") from None
    except ValueError as error:
        if str(error).startswith(str(path)):
            raise
        raise ValueError(f"{path}: {error}") from None  # a number of thousands of digits


def load(folders: Iterable[Path] = ()) -> KnowledgeBase:
    """The package's entries and those of `folders`; a file that can't be used is a problem, not an end."""
    base = KnowledgeBase({}, [], {})
    for folder in (ENTRIES, *folders):
        if not folder.is_dir():
            base.problems.append(f"{folder}: there is no such folder")
            continue
        for path in sorted(folder.glob("*.json")):
            try:
                entry = read_entry(path)
            except ValueError as error:
                base.problems.append(str(error))
                continue
            if entry.id in base.entries:
                base.problems.append(f"{path}: {entry.id} is there already, in {base.files[entry.id]}")
                continue
            base.entries[entry.id] = entry
            base.files[entry.id] = path
    return base
