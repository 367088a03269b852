"""A method of the recorder stands in a file of its class: `check_methods.py [root]`.

`Guards::pinLength` is in csrc/capture/guards.cc, or in a file whose name begins with that, such as guards_pins.cc. So
all that a class does is found by the names of its files. Exceptions, with their reasons, are in ELSEWHERE.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from check_sizes import cpp_functions
from checked_tree import run_check

TREE = "csrc/capture"
# The class, and the file that its methods are in besides.
ELSEWHERE = {
    ("ArgumentObjects", "csrc/capture/calls/model.cc"): "a tool of the models, in model.h with the others",
    ("CodeInfoBuilder", "csrc/capture/code_info.cc"): "it makes CodeInfo, which pyapi declares",
    ("Overlay", "csrc/capture/tables/overlays.cc"): "an entry of Overlays",
    ("WrittenEntries", "csrc/capture/tables/overlays.cc"): "what an overlay is made of, in overlays.h",
}
METHOD = re.compile(r"(?:^|::)([A-Z]\w*)::(?:operator.+|~?\w+)$")


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def belongs(stem: str, name: str) -> bool:
    """True for `guards` and `guards_pins`, not for `guardsman`, if the class is Guards."""
    own = snake_case(name)
    return stem == own or stem.startswith(own + "_")


def methods_of(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, class and full name of each method that is defined outside of its class."""
    for function in cpp_functions(text):
        match = METHOD.search(function.name)
        if match is not None:
            yield function.line, match.group(1), function.name


def check_tree(root: Path) -> list[str]:
    problems = []
    used = set()
    for path in sorted((root / TREE).rglob("*.cc")):
        where = path.relative_to(root).as_posix()
        for line, name, method in methods_of(path.read_text()):
            if belongs(path.stem, name):
                continue
            if (name, where) in ELSEWHERE:
                used.add((name, where))
            else:
                problems.append(
                    f"{where}:{line}: {method} is not in a file of its class ({snake_case(name)}*.cc)"
                )
    for name, where in ELSEWHERE:
        if (root / where).exists() and (name, where) not in used:
            problems.append(f"check_methods.py: no method of {name} is in {where}")
    return problems


if __name__ == "__main__":
    sys.exit(run_check("check_methods", check_tree))
