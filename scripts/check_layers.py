"""Compares every #include of csrc/ with csrc/layers.toml: `check_layers.py [root]`.

A layer may include its own headers, those of the layers that its row lists, and the standard library. Headers from
outside (torch, LLVM, CPython's internals ...), a few words and a few patterns are restricted to the layers that the
file names. Every feature of torch that is asked for is one that cmake/TorchFeatures.cmake looks for, and the reverse.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from checked_tree import run_check

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
SOURCES = {".cc", ".h", ".def", ".inc"}


def strip_comments(text: str) -> str:
    """Blanks comments, keeping line numbers, so that prose about a word is not a use of it."""
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", "", text)


def check_config(layers: dict[str, list[str]]) -> Iterator[str]:
    known: set[str] = set()
    for layer, allowed in layers.items():
        for name in allowed:
            if name not in known:
                yield f"csrc/layers.toml: {layer} lists {name}, which is not a layer above it in the file"
        known.add(layer)


def check_file(path: Path, csrc: Path, config: dict[str, Any]) -> Iterator[str]:
    layers, external, words = config["layers"], config["external"], config.get("words", {})
    layer = path.relative_to(csrc).parts[0]
    where = path.relative_to(csrc.parent)
    if layer not in layers:
        yield f"{where}: {layer} is not a layer of csrc/layers.toml"
        return
    patterns = {
        word: re.compile(rf"\b{re.escape(word)}\b") for word, allowed in words.items() if layer not in allowed
    }
    inside = str(path.relative_to(csrc))
    kinds = [
        row
        for row in config.get("patterns", [])
        if layer not in row["layers"] and not inside.startswith(tuple(row.get("but", ())))
    ]
    for number, line in enumerate(strip_comments(path.read_text()).splitlines(), 1):
        for word, pattern in patterns.items():
            if pattern.search(line):
                yield f"{where}:{number}: {word} may only be used in {', '.join(words[word])}"
        for row in kinds:
            for found in re.finditer(row["pattern"], line):
                yield (
                    f"{where}:{number}: {found.group()} ({row['what']}) may only be used in "
                    f"{', '.join(row['layers']) or 'no layer'}"
                )
        match = INCLUDE.match(line)
        if match is None:
            continue
        name = match.group(1) or match.group(2)
        target = name.split("/")[0]
        if match.group(1) and target in layers:
            if target != layer and target not in layers[layer]:
                yield f"{where}:{number}: {layer} may not include {name} ({target} is not below it)"
            if not (csrc / name).exists():
                yield f"{where}:{number}: {name} does not exist"
            continue
        for prefix, allowed in external.items():
            if name.startswith(prefix) and layer not in allowed:
                yield f"{where}:{number}: {layer} may not include {name} (only {', '.join(allowed)})"


def included(csrc: Path, path: Path, seen: set[str]) -> set[str]:
    """Adds to `seen` the headers of csrc/ that a file includes, by itself or through others."""
    for line in path.read_text().splitlines():
        match = INCLUDE.match(line)
        name = match.group(1) if match else None
        if name and name not in seen and (csrc / name).exists():
            seen.add(name)
            included(csrc, csrc / name, seen)
    return seen


def check_private(csrc: Path, private: dict[str, list[str]]) -> Iterator[str]:
    for place in sorted({place for places in private.values() for place in places}):
        folder = (csrc / place).is_dir()
        files = (csrc / place).rglob("*") if folder else csrc.glob(f"{place}.*")
        paths = sorted(path for path in files if path.suffix in SOURCES)
        if not paths:
            yield f"csrc/layers.toml: [private] names {place}, which does not exist"
        for path in paths:
            for name in sorted(private.keys() & included(csrc, path, set())):
                if place in private[name]:
                    shown = f"{place}/" if folder else place
                    yield f"{path.relative_to(csrc.parent)}: {shown} may not include {name}, nor through others"


def check_features(root: Path) -> Iterator[str]:
    """A macro that nobody defines is 0, so a misspelt one would be silent."""
    file = root / "cmake" / "TorchFeatures.cmake"
    if not file.exists():
        return
    probed = set(re.findall(r"^kintsugi_torch_has\((\w+)", file.read_text(), re.MULTILINE)) - {"HEADERS"}
    asked: dict[str, str] = {}
    for path in sorted((root / "csrc").rglob("*")):
        if path.suffix in SOURCES:
            for name in re.findall(r"\bKINTSUGI_TORCH_HAS_(\w+)", strip_comments(path.read_text())):
                asked.setdefault(name, str(path.relative_to(root)))
    for name in sorted(asked.keys() - probed):
        yield f"{asked[name]}: KINTSUGI_TORCH_HAS_{name} is not looked for in cmake/TorchFeatures.cmake"
    for name in sorted(probed - asked.keys()):
        yield f"cmake/TorchFeatures.cmake: nobody asks for KINTSUGI_TORCH_HAS_{name}"


def check_python(root: Path, allowed: dict[str, str]) -> Iterator[str]:
    """Operators of ATen as text in the Python package: what is known of one is a row of csrc/ops/operators.def."""
    for path in sorted((root / "python").rglob("*.py")):
        where = str(path.relative_to(root))
        if where in allowed:
            continue
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
            if token.type == tokenize.STRING and re.match(r"""[rb]?["']aten(?:::|\.)""", token.string):
                yield f"{where}:{token.start[0]}: {token.string} may only be used in {', '.join(allowed)}"


def check_tree(root: Path) -> list[str]:
    csrc = root / "csrc"
    config = tomllib.loads((csrc / "layers.toml").read_text())
    problems = [*check_config(config["layers"]), *check_features(root)]
    problems += check_python(root, config.get("python", {}))
    for path in sorted(csrc.rglob("*")):
        if path.suffix in SOURCES:
            problems += check_file(path, csrc, config)
    return [*problems, *check_private(csrc, config.get("private", {}))]


if __name__ == "__main__":
    sys.exit(run_check("check_layers", check_tree))
