"""Random tensor graphs as text, with inputs for them.

`python tests/fuzz/graphs.py --count 1000 --seed 1` runs them natively, through all passes, and node by node through
ATen (tests/python/graph_reference.py); `--seconds 60` ends before all of them have run, and `--save FOLDER` keeps the
texts of those that differ.

What is decided by a number (comparisons, rounding to integers, places of the greatest) is decided by exact values
alone: inputs, and what is made of them without rounding. Else two right ways to round would part here and there.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for `bench`, which the reference takes from
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from graph_reference import DTYPES, problems, reference

from kintsugi import _C


@dataclasses.dataclass(frozen=True)
class Dim:
    """A size: a number, or that of a symbol times it."""

    number: int
    symbol: str = ""
    factor: int = 1

    @property
    def text(self) -> str:
        if not self.symbol:
            return str(self.number)
        return self.symbol if self.factor == 1 else f"{self.factor}*{self.symbol}"


def times(a: Dim, b: Dim) -> Dim:
    return Dim(a.number * b.number, "*".join(s for s in (a.symbol, b.symbol) if s), _factor(a) * _factor(b))


def _factor(dim: Dim) -> int:
    return dim.factor if dim.symbol else dim.number


def dense(sizes: Sequence[Dim], order: Sequence[int]) -> list[Dim]:
    """Strides of a tensor without gaps, the dimensions in that order, the last of them the innermost."""
    strides, step = [Dim(1)] * len(sizes), Dim(1)
    for dim in reversed(order):
        strides[dim] = step
        step = times(step, sizes[dim])
    return strides


ONE = Dim(1)
FLOATS = ("f32", "f32", "f32", "f64", "bf16", "f16")
INTEGERS = ("i64", "i32", "u8")


@dataclasses.dataclass
class Made:
    """A node: what it is to those that may use it."""

    name: str
    elem: str
    sizes: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    exact: bool
    whole: bool  # its elements are all of its memory, in order


class GraphMaker:
    """Makes one graph."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rows: list[str] = []
        self.header: list[str] = []
        self.made: list[Made] = []
        self.inputs: list[Made] = []
        self.layouts: list[str] = []
        self.space = [Dim(self.random.choice((1, 2, 3, 5, 7, 8, 16, 17, 33, 64, 130))) for _ in range(3)]
        self.varies = self.random.random() < 0.3
        if self.varies:
            seen = self.random.choice((4, 9, 20))
            self.space[0] = Dim(seen, "s0")
            self.header.append(f"size s0 = {seen}")

    def list_text(self, dims: Sequence[Dim]) -> str:
        return "[" + ",".join(dim.text for dim in dims) + "]"

    def add(self, head: str, elem: str, sizes: Sequence[Dim], exact: bool, **more: object) -> Made:
        strides = more.get("strides")
        text = f"{head} {elem}{self.list_text(sizes)}"
        if strides is not None:
            text += f" strides={self.list_text(strides)}"  # type: ignore[arg-type]
        for word in ("offset", "bounds", "last", "trailing"):
            if more.get(word):
                text += f" {word}={more[word]}"
        text += str(more.get("flags", ""))
        name = f"%{len(self.rows)}"
        self.rows.append(f"{name} = {text}")
        in_order = dense(sizes, range(len(sizes)))
        made = Made(
            name,
            elem,
            tuple(sizes),
            tuple(strides or in_order),
            exact,
            strides is None and not more.get("view"),
        )
        self.made.append(made)
        return made

    def shape(self) -> list[Dim]:
        """One that broadcasts to the space of the graph."""
        rank = self.random.choice((1, 2, 2, 3, 3))
        return [ONE if self.random.random() < 0.15 else dim for dim in self.space[3 - rank :]]

    def add_input(self) -> None:
        elem = self.random.choice((*FLOATS, *INTEGERS, "bool"))
        sizes = self.shape()
        open_ = any(dim.symbol for dim in sizes)
        more: dict[str, object] = {"flags": " open packed"} if open_ else {}
        if not open_ and len(sizes) > 1 and self.random.random() < 0.25:
            more["strides"] = dense(sizes, self.random.sample(range(len(sizes)), len(sizes)))
        self.inputs.append(self.add("input", elem, sizes, True, **more))

    def number(self, elem: str) -> str:
        if elem == "bool":
            value: object = self.random.choice((0, 1))
        elif elem in INTEGERS:
            value = self.random.choice((0, 1, 2, 3, 7))
        else:
            value = self.random.choice((0.0, 1.0, -1.0, 0.5, 2.0, -0.25, 3.0))
        self.rows.append(f"%{len(self.rows)} = const {value} {elem}")
        return f"%{len(self.rows) - 1}"

    def pick(self, elem: str = "", exact: bool = False) -> Made | None:
        fit = [m for m in self.made if (not elem or m.elem == elem) and (m.exact or not exact)]
        return self.random.choice(fit[-8:]) if fit else None

    def meet(self, *values: Made) -> list[Dim] | None:
        """The sizes that the values broadcast to."""
        out: list[Dim] = []
        for value in values:
            sizes = list(value.sizes)
            length = max(len(sizes), len(out))
            a, b = [ONE] * (length - len(out)) + out, [ONE] * (length - len(sizes)) + sizes
            out = []
            for x, y in zip(a, b, strict=True):
                if x != y and ONE not in (x, y):
                    return None
                out.append(y if x == ONE else x)
        return out

    def point(self, head: str, elem: str, sizes: Sequence[Dim], exact: bool) -> Made:
        return self.add(head, elem, sizes, exact)

    # --- one way to go on each

    def go_binary(self) -> None:
        a = self.pick()
        if a is None or a.elem == "bool":
            return
        number = self.random.random() < 0.3
        b = self.pick(a.elem)
        if b is None or (sizes := self.meet(a, b)) is None:
            return
        if number:
            sizes = list(a.sizes)
        right = self.number(a.elem) if number else b.name
        op = self.random.choice(("add", "sub", "mul", "max", "min", "add", "mul"))
        exact = op in ("max", "min") and a.exact and (number or b.exact) or a.elem in INTEGERS
        self.point(f"{op}({a.name}, {right})", a.elem, sizes, exact)

    def go_safe(self) -> None:
        """Division, logarithms and roots, of numbers that they do well with."""
        a, b = self.pick(), None
        if a is None or a.elem in ("bool", *INTEGERS):
            return
        size = self.point(f"abs({a.name})", a.elem, a.sizes, a.exact)
        above = self.point(f"add({size.name}, {self.half(a.elem)})", a.elem, a.sizes, False)
        op = self.random.choice(("div", "log", "sqrt"))
        op = "sqrt" if op == "log" and a.elem == "f64" else op  # there is no code for it
        if op != "div":
            self.point(f"{op}({above.name})", a.elem, a.sizes, False)
            return
        b = self.pick(a.elem)
        if b is not None and (sizes := self.meet(b, above)) is not None:
            self.point(f"div({b.name}, {above.name})", a.elem, sizes, False)

    def half(self, elem: str) -> str:
        self.rows.append(f"%{len(self.rows)} = const 0.5 {elem}")
        return f"%{len(self.rows) - 1}"

    def go_unary(self) -> None:
        a = self.pick()
        if a is None or a.elem == "bool":
            return
        if a.elem in INTEGERS:
            self.point(f"neg({a.name})", a.elem, a.sizes, True)
            return
        op = self.random.choice(("neg", "abs", "tanh", "erf", "exp", "floor", "ceil", "trunc"))
        if (
            op in ("floor", "ceil", "trunc")
            and not a.exact
            or op in ("tanh", "erf", "exp")
            and a.elem == "f64"
        ):
            return
        if op == "exp":
            a = self.point(f"min({a.name}, {self.number(a.elem)})", a.elem, a.sizes, False)
        exact = a.exact and op in ("neg", "abs", "floor", "ceil", "trunc")
        self.point(f"{op}({a.name})", a.elem, a.sizes, exact)

    def go_compare(self) -> None:
        a = self.pick(exact=True)
        b = self.pick(a.elem, exact=True) if a is not None and a.elem != "bool" else None
        if a is None or b is None or (sizes := self.meet(a, b)) is None:
            return
        self.point(
            f"{self.random.choice(('eq', 'ne', 'lt', 'le', 'gt', 'ge'))}({a.name}, {b.name})",
            "bool",
            sizes,
            True,
        )

    def go_logic(self) -> None:
        a, b = self.pick("bool"), self.pick("bool")
        if a is None or b is None or (sizes := self.meet(a, b)) is None:
            return
        if self.random.random() < 0.3:
            self.point(f"not({a.name})", "bool", a.sizes, True)
        else:
            self.point(f"{self.random.choice(('and', 'or'))}({a.name}, {b.name})", "bool", sizes, True)

    def go_select(self) -> None:
        mask, a = self.pick("bool"), self.pick()
        b = self.pick(a.elem) if a is not None else None
        if mask is None or a is None or b is None or (sizes := self.meet(mask, a, b)) is None:
            return
        self.point(f"select({mask.name}, {a.name}, {b.name})", a.elem, sizes, a.exact and b.exact)

    def go_cast(self) -> None:
        a = self.pick()
        if a is None:
            return
        wider = [e for e in ("f32", "f64", "f32") if a.elem not in ("f64", e)]
        if a.elem in ("f32", "f64"):
            wider += ["bf16", "f16"]
        if a.elem in ("bool", "u8", "i32"):
            wider += ["i64"]
        if wider:
            to = self.random.choice(wider)
            rounds = to in ("bf16", "f16") or a.elem == "i64"
            self.point(f"cast({a.name})", to, a.sizes, a.exact and not rounds)

    def go_layout(self) -> None:
        """A result that lies in another order: as the program's results do, nothing is made of it."""
        a = self.pick()
        if a is None or len(a.sizes) < 2:
            return
        order = self.random.sample(range(len(a.sizes)), len(a.sizes))
        made = self.add(f"cast({a.name})", a.elem, a.sizes, a.exact, strides=dense(a.sizes, order))
        self.made.remove(made)
        self.layouts.append(made.name)

    def go_reduce(self) -> None:
        a = self.pick()
        if a is None or a.elem != "f32":
            return
        rank = len(a.sizes)
        # Several dimensions at once have to be a run of memory.
        reduced = self.random.randint(1, rank) if a.whole else 1
        trailing = self.random.randint(0, rank - reduced) if self.random.random() < 0.4 else 0
        end = rank - trailing
        if any(dim.symbol for dim in a.sizes[end - reduced : end]) and self.random.random() < 0.5:
            return
        sizes = [ONE if end - reduced <= d < end else dim for d, dim in enumerate(a.sizes)]
        op = self.random.choice(("sum", "sum", "max", "min", "argmax", "argmin"))
        if op.startswith("arg") and (not a.exact or reduced != 1):
            op = "sum"
        exact = op != "sum" and a.exact
        elem = "i64" if op.startswith("arg") else a.elem
        self.add(f"reduce.{op}({a.name})", elem, sizes, exact, last=reduced, trailing=trailing)

    def go_view(self) -> None:
        a = self.pick()
        if a is None:
            return
        rank, kind = len(a.sizes), self.random.choice(("transpose", "slice", "expand", "reshape"))
        sizes, strides, offset = list(a.sizes), list(a.strides), 0
        if kind == "transpose":
            order = self.random.sample(range(rank), rank)
            sizes, strides = [sizes[d] for d in order], [strides[d] for d in order]
        elif kind == "slice":
            dim = self.random.randrange(rank)
            if sizes[dim].symbol or sizes[dim].number < 2 or strides[dim].symbol:
                return
            step = self.random.choice((1, 1, 2))
            first = self.random.randrange(sizes[dim].number - 1)
            offset = first * strides[dim].number
            sizes[dim] = Dim((sizes[dim].number - first + step - 1) // step)
            strides[dim] = Dim(strides[dim].number * step)
        elif kind == "expand":
            sizes, strides = [self.random.choice((ONE, Dim(3))), *sizes], [Dim(0), *strides]
            if len(sizes) > 3:
                return
        else:
            if not a.whole or rank < 2:
                return
            dim = self.random.randrange(rank - 1)
            sizes[dim : dim + 2] = [times(sizes[dim], sizes[dim + 1])]
            strides = dense(sizes, range(len(sizes)))
        made = self.add(f"view({a.name})", a.elem, sizes, a.exact, strides=strides, offset=offset, view=True)
        made.whole = kind == "reshape"

    def go_join(self) -> None:
        a = self.pick()
        if a is None:
            return
        others = [m for m in self.made if m.elem == a.elem and m.sizes == a.sizes]
        parts = [a, *(self.random.choice(others) for _ in range(self.random.randint(1, 2)))]
        names = ", ".join(part.name for part in parts)
        exact = all(part.exact for part in parts)
        dim = self.random.randrange(len(a.sizes))
        if any(size.symbol for size in a.sizes[dim:]):
            return  # where a part begins is a number
        if self.random.random() < 0.3 and len(a.sizes) < 3:
            sizes = [*a.sizes[:dim], Dim(len(parts)), *a.sizes[dim:]]
            self.add(f"join.stacked {dim}({names})", a.elem, sizes, exact)
        else:
            sizes = list(a.sizes)
            one = sizes[dim]
            sizes[dim] = Dim(one.number * len(parts), one.symbol, one.factor * len(parts))
            self.add(f"join {dim}({names})", a.elem, sizes, exact)

    def go_part(self) -> None:
        """Padding: a view that begins before its memory, read within bounds."""
        a = self.pick()
        if a is None or a.elem != "f32" or any(dim.symbol for dim in (*a.sizes, *a.strides)) or not a.whole:
            return
        dim = self.random.randrange(len(a.sizes))
        low, more = self.random.randint(0, 2), self.random.randint(0, 2)
        size = a.sizes[dim].number
        if size < 2:
            return
        sizes = list(a.sizes)
        sizes[dim] = Dim(size + low + more)
        view = self.add(
            f"view({a.name})",
            a.elem,
            sizes,
            a.exact,
            strides=a.strides,
            offset=-low * a.strides[dim].number,
            view=True,
        )
        self.made.pop()
        number = self.number(a.elem)
        bounds = f"[{dim}:{low}:{low + size}]"
        self.add(f"part({view.name}, {number})", a.elem, sizes, a.exact, bounds=bounds)

    def make(self) -> str:
        """The text of a valid graph; empty where nothing came of it."""
        for _ in range(self.random.randint(1, 4)):
            self.add_input()
        ways = [getattr(self, name) for name in dir(self) if name.startswith("go_")]
        for _ in range(self.random.randint(3, 25)):
            self.random.choice(ways)()
        results = [m for m in self.made if m not in self.inputs and not self.is_view(m)]
        if not results:
            return ""
        outputs = [m.name for m in self.random.sample(results, min(len(results), self.random.randint(1, 4)))]
        outputs = list(dict.fromkeys([*outputs, results[-1].name, *self.layouts[:2]]))
        writes = self.writes(results)
        inputs = ", ".join(m.name for m in self.inputs)
        lines = [
            *self.header,
            f"inputs {inputs}",
            *self.rows,
            f"outputs {', '.join([*outputs, *writes[0]])}",
            *writes[1],
        ]
        return "graph {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"

    def is_view(self, made: Made) -> bool:
        return " = view(" in self.rows[int(made.name[1:])]

    def writes(self, results: list[Made]) -> tuple[list[str], list[str]]:
        """Something of the sizes of an input is stored there, now and then."""
        for number, target in enumerate(self.inputs):
            fit = [m for m in results if m.elem == target.elem and m.sizes == target.sizes]
            if fit and not self.varies and self.random.random() < 0.3:
                text = f"{target.elem}{self.list_text(target.sizes)} strides={self.list_text(target.strides)}"
                rows = [f"write input {number} {text}", f"written input {number} times=1"]
                return [self.random.choice(fit).name], rows
        return [], []

    def tensors(self, rows: int) -> list[torch.Tensor]:
        """Inputs; `rows`: what the symbol is."""
        generator = torch.Generator().manual_seed(self.random.randrange(2**32))
        out = []
        for value in self.inputs:
            sizes = [rows if dim.symbol else dim.number for dim in value.sizes]
            dtype = DTYPES[value.elem]
            if value.elem == "bool":
                made = torch.rand(sizes, generator=generator) < 0.5
            elif value.elem in INTEGERS:
                made = torch.randint(0, 9, sizes, generator=generator).to(dtype)
            else:
                made = (torch.randn(sizes, generator=generator) * 2).to(dtype)
            if not any(dim.symbol for dim in value.sizes):
                strides = [dim.number for dim in value.strides]
                laid = torch.empty_strided(sizes, strides, dtype=dtype)
                made = laid.copy_(made)
            out.append(made)
        return out


class Refused(Exception):
    """No native code is made for it."""


def check(seed: int) -> tuple[str, list[str]]:
    """The graph of that seed, and how its native results differ from ATen's."""
    maker = GraphMaker(seed)
    text = maker.make()
    found: list[str] = []
    if not text:
        return text, found
    try:
        native = _C._graph_testing.NativeGraph(text)
    except ValueError as error:
        if "not valid" in str(error) or "KTG0001" in str(error) or ": " in str(error):
            return text, [f"the graph is refused: {error}"]
        raise Refused(str(error)) from None
    counts = [dim.number for dim in maker.space[:1]] + ([13, 2] if maker.varies else [])
    for rows in counts:
        tensors = maker.tensors(rows)
        copies = [[_same(t) for t in tensors] for _ in range(3)]
        actual = native.run(copies[0])
        if actual is None:
            found.append(f"rows {rows}: the run declines")
            continue
        at = (
            text
            if rows == maker.space[0].number
            else text.replace("size s0 = " + str(maker.space[0].number), f"size s0 = {rows}")
        )
        expected, exact = reference(at, copies[1]), reference(at, copies[2], wide=True)
        for what, results in (("", (actual, expected, exact)), ("input ", copies)):
            found += [f"rows {rows}: {what}{line}" for line in problems(*results)]  # type: ignore[arg-type]
    return text, found


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no graph after so many")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    ran = differ = refused = 0
    for seed in range(options.seed, options.seed + options.count):
        if time.monotonic() >= end:
            break
        ran += 1
        try:
            text, found = check(seed)
        except Refused:
            refused += 1
            continue
        if found:
            differ += 1
            print(f"; graph {seed}\n{text}; " + "\n; ".join(found), flush=True)
            if options.save:
                options.save.mkdir(parents=True, exist_ok=True)
                (options.save / f"graph_{seed}.ktir").write_text(text)
    print(f"{ran} graphs, {differ} differ, {refused} refused")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
