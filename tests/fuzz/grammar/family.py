"""What generated programs are made of: families of templates, text with places to be filled in.

In a template `$t` stands for a tensor expression, `$v` for the name of a tensor, `$w` for one that may be assigned,
`$i` for an integer expression, `$k` for the name of an integer, `$s` for a number of any kind (bool, int, float, NaN,
a tensor of rank 0, numpy's, one that is known at run time only), `$c` for a condition and `$d` for a digit. `$r`, `$n`
and `$z` name a new tensor, a new integer and a new number; `$1`, `$2` ... are new names of nothing in particular. A
line `$block` is replaced by statements, `$body` by those of a function's body (over its parameters v and n) with its
return, `$yields` likewise by those of a generator's. All tensors are of the form (rows, 4), so that any two fit.

A template of `between` is done between two calls, outside of the compiled function; it may name `call`, `log` and `box`
and the globals, and has no tensors or numbers but `$d`.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Family:
    """Templates that belong together. A program takes the base and a few others.

    `prelude` stands before the program. A function `restore_<name>()` in it puts back what programs change; it is
    called before each call of a program that starts afresh, and before the first of all. `alone` are patterns: of the
    templates that one of them is found in, none stands inside another (what one holds, the other would wait for).
    """

    name: str
    prelude: str = ""
    tensors: tuple[str, ...] = ()
    integers: tuple[str, ...] = ()
    scalars: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    raises: tuple[str, ...] = ()
    simple: tuple[str, ...] = ()
    nested: tuple[str, ...] = ()
    between: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()


def rows(text: str) -> tuple[str, ...]:
    """One template a line."""
    return tuple(text.strip().splitlines())


def parts(text: str) -> tuple[str, ...]:
    """Templates of several lines, divided by ===."""
    return tuple(text.strip().split("\n===\n"))
