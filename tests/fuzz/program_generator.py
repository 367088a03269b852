"""Writes one program from a seed, out of the families of templates in grammar/.

A program is three functions: `program` itself, `entry`, which gives the callable that is compiled, and `between`, which
is called before each call and changes what the program depends on.
"""

from __future__ import annotations

import random
import re

from grammar import BASE, ERRORS, FAMILIES, SOURCES, Family

PLACE = re.compile(r"\$(\w+)")
DEEPEST = 4
LONG = 90
OWN = 0.55  # the share of what comes from the families that were drawn, where they have any

# How the program is reached: what `entry(log, box)` returns. SIGNATURE is that of the program without its state.
PASSED = "x, y, k, log, box, *rest, s=s, mask=mask, **kw"
ENTRIES = (
    "return lambda x, y, k, *rest, s=1, mask=None, **kw: program({passed})",
    "return lambda x, y, k, *rest, **kw: program(x, y, k, log, box, *rest, **kw)",
    """
    def call(x, y, k=1, *rest, s=1, mask=None, **kw):
        return program({passed})
    return call
    """,
    """
    def call(x, y, k, s=1, mask=None, extra=None, scale=None):
        return program(x, y, k, log, box, s=s, mask=mask)
    return call
    """,
    """
    class Entry(torch.nn.Module):
        def forward(self, x, y, k, *rest, s=1, mask=None, **kw):
            return program({passed})
    return Entry()
    """,
    """
    class Entry(torch.nn.Module):
        def forward(self, x, y, k, **kw):
            return program(x, y, k, log, box, **kw)
    return Entry()
    """,
    """
    class Entry:
        def run(self, x, y, k, *rest, **kw):
            return program(x, y, k, log, box, *rest, **kw)
    return Entry().run
    """,
)


class Scope:
    """The names of one function: those that can be read, those that are its own, and how it is left."""

    def __init__(self, tensors: list[str], ints: list[str], scalars: list[str], kind: str) -> None:
        self.tensors, self.ints, self.scalars, self.kind = tensors, ints, scalars, kind
        self.own = list(tensors)

    def names(self, place: str) -> list[list[str]]:
        """The lists that a new name of this kind belongs to."""
        return {"r": [self.tensors, self.own], "n": [self.ints], "z": [self.scalars]}[place]


class Generator:
    """Writes one program."""

    def __init__(self, seed: int, families: list[Family] | None = None) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.scope = Scope(["x", "y"], ["k"], ["s"], "program")
        self.fresh = 0
        self.loops = 0
        self.held: set[str] = set()  # patterns (Family.alone) of the templates that this place is inside
        drawn = self.random.sample(FAMILIES, self.random.choice((0, 1, 1, 2, 2, 3)))
        self.families = drawn if families is None else families
        self.alone = [pattern for family in self.families for pattern in family.alone]

    def prelude(self) -> str:
        """What the program's families need."""
        return "\n".join(family.prelude for family in self.families)

    def generate(self) -> str:
        self.begin()
        self.block(1, depth=0, most=8)
        changes = [text for family in self.families for text in family.between]
        count = self.random.choice((0, 1, 1, 2, 3)) if changes else 0
        return self.end([self.random.choice(changes) for _ in range(count)])

    def single(self, table: str, text: str) -> str:
        """A program about one template: alone, or among expressions of its family if it is a change between calls."""
        self.begin()
        family = self.families[0]
        if table == "between":
            for name in ("integers", "conditions", "tensors"):
                for row in getattr(family, name)[:30]:
                    value = self.expression(row, 2)
                    self.line(1, "try:")
                    self.line(2, f"log.append({value})")
                    self.line(1, "except Exception as e:")
                    self.line(2, "log.append(repr(e))")
        elif table in ("simple", "nested"):
            self.template(1, 1, text)
        elif table == "raises":
            self.template(1, 1, f"if $c:\n    {text}")
        else:
            self.line(1, f"log.append({self.expression(text, 1)})")
        return self.end([text] if table == "between" else [])

    def begin(self) -> None:
        self.line(0, "def program(x, y, k, log, box, *rest, s=1, mask=None, **kw):")
        self.line(1, "global COUNT")

    def end(self, changes: list[str]) -> str:
        """The rest: how the program is entered, and changes between calls, which last until the state is made anew."""
        self.line(1, self.result())
        self.line(0, "def entry(log, box):")
        for row in self.random.choice(ENTRIES).strip().splitlines():
            self.lines.append("    " + row.removeprefix("    ").format(passed=PASSED))
        self.line(0, "def between(call, log, box):")
        self.line(1, "global COUNT")
        self.scope = Scope(["box.w"], ["call"], ["call"], "program")
        for text in changes:
            after = self.random.randint(1, 3)
            self.line(1, f"if call {self.random.choice(('==', '>=', '>='))} {after}:")
            self.template(2, 1, text)
        return "\n".join(self.lines) + "\n"

    def line(self, level: int, text: str) -> None:
        self.lines.append("    " * level + text)

    def name(self, prefix: str) -> str:
        self.fresh += 1
        return f"{prefix}{self.fresh}"

    def drawn(self, table: str) -> str:
        """A template of a table, from one of the program's families or from the base."""
        own: list[Family] = [family for family in self.families if getattr(family, table)]
        family = self.random.choice(own) if own and self.random.random() < OWN else BASE
        fitting = [text for text in getattr(family, table) if not self.held & self.patterns_in(text)]
        return self.random.choice(fitting or getattr(BASE, table))

    def patterns_in(self, text: str) -> set[str]:
        return {pattern for pattern in self.alone if re.search(pattern, text)}

    # --- expressions ---

    def expression(self, template: str, depth: int) -> str:
        return PLACE.sub(lambda place: self.filled(place.group(1), depth), template)

    def filled(self, place: str, depth: int = 0) -> str:
        r, scope = self.random, self.scope
        if place == "t" and (depth > 1 or r.random() < 0.3):
            place = "v"
        if place == "i" and depth > 1:
            place = "k"
        if place == "c" and depth > 1:
            return f"{r.choice(scope.ints)} > {r.randint(0, 3)}"
        if place == "s" and depth > 1:
            return r.choice([*scope.scalars, *scope.ints, "0.5", "True"])
        names = {"v": scope.tensors, "w": scope.own or scope.tensors, "k": scope.ints}
        if place in names:
            return r.choice(names[place])
        if place == "d":
            return str(r.randint(0, 3))
        table = {"t": "tensors", "i": "integers", "c": "conditions", "s": "scalars"}[place]
        return self.expression(self.drawn(table), depth + 1)

    # --- statements ---

    def block(self, level: int, depth: int, most: int = 3) -> None:
        scope = self.scope
        kept = list(scope.tensors), list(scope.ints), list(scope.scalars), list(scope.own)
        for _ in range(self.random.randint(1, most)):
            self.statement(level, depth)
        if depth:  # what a block makes may not exist after it
            scope.tensors, scope.ints, scope.scalars, scope.own = kept

    def statement(self, level: int, depth: int) -> None:
        r = self.random
        if depth < DEEPEST and len(self.lines) < LONG and r.random() < 0.4:
            self.template(level, depth, self.drawn("nested"))
        elif self.scope.kind == "yields" and r.random() < 0.4:
            self.line(level, self.yielding())
        elif depth and r.random() < 0.06:
            self.line(level, f"if {self.filled('c')}:")
            self.line(level + 1, self.result())
        else:
            self.template(level, depth, self.drawn("simple"))

    def yielding(self) -> str:
        value = self.filled("t")
        return self.random.choice(
            [f"yield {value}", f"yield {value}", f"log.append((yield {value}))", f"yield from [{value}]"]
        )

    def result(self) -> str:
        kind = self.scope.kind
        if kind == "yields":
            return self.random.choice(["return", f"return {self.filled('k')}"])
        if kind == "body":
            return f"return {self.filled('t')}"
        last = self.random.choice(("len(log)", "len(log)", self.filled("s")))
        return f"return [{self.filled('v')}, {self.filled('v')}, {self.filled('k')}, {last}]"

    def leave(self) -> str:
        return self.random.choice(["break", "continue"]) if self.loops else self.result()

    def template(self, level: int, depth: int, text: str) -> None:
        """Names that a line at the template's own level assigns exist after it, the others inside only."""
        made: dict[str, str] = {}
        scope = self.scope
        held, self.held = self.held, self.held | self.patterns_in(text)
        lasting: set[str] = set()
        for row in text.splitlines():
            inner = (len(row) - len(row.lstrip())) // 4
            row = row.strip()
            if row in ("$block", "$body", "$yields"):
                self.nested_block(row, level + inner, depth)
                continue
            targets = PLACE.findall(row.split(" = ")[0]) if " = " in row else []
            new: list[str] = []
            filled = PLACE.sub(lambda place: self.placed(place.group(1), made, new), row)
            self.loops += row.startswith(("for ", "while ")) and row.endswith(":")
            self.line(level + inner, filled)
            for place in new:
                for names in scope.names(place):
                    names.append(made[place])
                if inner == 0 and place in targets:
                    lasting.add(made[place])
        self.held = held
        self.loops -= sum(
            row.strip().startswith(("for ", "while ")) and row.endswith(":") for row in text.splitlines()
        )
        for place in ("r", "n", "z"):
            name = made.get(place)
            if name and name not in lasting:
                for names in scope.names(place):
                    if name in names:
                        names.remove(name)

    def placed(self, place: str, made: dict[str, str], new: list[str]) -> str:
        if place in ("r", "n", "z") or place.isdigit():
            if place not in made:
                made[place] = self.name({"r": "t", "n": "n", "z": "z"}.get(place, "h"))
                if not place.isdigit():
                    new.append(place)
            return made[place]
        if place == "raise":
            return self.expression(self.drawn("raises"), 1)
        special = {"error": ERRORS, "source": SOURCES}
        if place in special:
            return self.random.choice(special[place])
        return self.leave() if place == "leave" else self.filled(place)

    def nested_block(self, row: str, level: int, depth: int) -> None:
        if row == "$block":
            self.block(level, depth + 1)
            return
        outer, loops = self.scope, self.loops
        self.scope = Scope([*outer.tensors[-2:], "v"], [*outer.ints[-2:], "n"], outer.scalars[-2:], row[1:])
        self.scope.own = ["v"]
        self.loops = 0
        self.line(level, "global COUNT")
        self.block(level, depth + 2)
        if row == "$yields":
            self.line(level, self.yielding())
            self.line(level, self.result())
        else:
            self.line(level, self.result())
        self.scope, self.loops = outer, loops
