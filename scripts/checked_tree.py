"""The program of scripts/check_*.py: what a check finds in a tree is printed, and is the exit status."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path


def run_check(name: str, check_tree: Callable[[Path], list[str]]) -> int:
    """Checks the tree that the command line names, or this one; 1 if there are problems."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent
    problems = check_tree(root)
    print("\n".join(problems) if problems else f"{name}: ok")
    return 1 if problems else 0
