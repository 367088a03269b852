"""Writes one program from a seed, out of program_templates.py."""

from __future__ import annotations

import random
import re

from program_templates import (
    CONDITIONS,
    ERRORS,
    INTEGERS,
    NESTED,
    RAISES,
    SIMPLE,
    SOURCES,
    TENSORS,
)

PLACE = re.compile(r"\$(\w+)")
DEEPEST = 4
LONG = 90


class Scope:
    """The names of one function: those that can be read, those that are its own, and how it is left."""

    def __init__(self, tensors: list[str], ints: list[str], kind: str) -> None:
        self.tensors, self.ints, self.kind = tensors, ints, kind
        self.own = list(tensors)


class Generator:
    """Writes one program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.scope = Scope(["x", "y"], ["k"], "program")
        self.fresh = 0
        self.loops = 0

    def generate(self) -> str:
        self.line(0, "def program(x, y, k, log, box):")
        self.line(1, "global COUNT")
        self.block(1, depth=0, most=8)
        self.line(1, self.result())
        return "\n".join(self.lines) + "\n"

    def line(self, level: int, text: str) -> None:
        self.lines.append("    " * level + text)

    def name(self, prefix: str) -> str:
        self.fresh += 1
        return f"{prefix}{self.fresh}"

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
        names = {"v": scope.tensors, "w": scope.own or scope.tensors, "k": scope.ints}
        if place in names:
            return r.choice(names[place])
        if place == "d":
            return str(r.randint(0, 3))
        table = {"t": TENSORS, "i": INTEGERS, "c": CONDITIONS}[place]
        return self.expression(r.choice(table), depth + 1)

    # --- statements ---

    def block(self, level: int, depth: int, most: int = 3) -> None:
        scope = self.scope
        kept = list(scope.tensors), list(scope.ints), list(scope.own)
        for _ in range(self.random.randint(1, most)):
            self.statement(level, depth)
        if depth:  # what a block makes may not exist after it
            scope.tensors, scope.ints, scope.own = kept

    def statement(self, level: int, depth: int) -> None:
        r = self.random
        if depth < DEEPEST and len(self.lines) < LONG and r.random() < 0.4:
            self.template(level, depth, r.choice(NESTED))
        elif self.scope.kind == "yields" and r.random() < 0.4:
            self.line(level, self.yielding())
        elif depth and r.random() < 0.06:
            self.line(level, f"if {self.filled('c')}:")
            self.line(level + 1, self.result())
        else:
            self.template(level, depth, r.choice(SIMPLE))

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
        return f"return [{self.filled('v')}, {self.filled('v')}, {self.filled('k')}, len(log)]"

    def leave(self) -> str:
        return self.random.choice(["break", "continue"]) if self.loops else self.result()

    def template(self, level: int, depth: int, text: str) -> None:
        """Names that a line at the template's own level assigns exist after it, the others inside only."""
        made: dict[str, str] = {}
        scope = self.scope
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
                (scope.tensors if place == "r" else scope.ints).append(made[place])
                if place == "r":
                    scope.own.append(made[place])
                if inner == 0 and place in targets:
                    lasting.add(made[place])
        self.loops -= sum(
            row.strip().startswith(("for ", "while ")) and row.endswith(":") for row in text.splitlines()
        )
        for place in ("r", "n"):
            name = made.get(place)
            if name and name not in lasting:
                for names in (scope.tensors, scope.ints, scope.own):
                    if name in names:
                        names.remove(name)

    def placed(self, place: str, made: dict[str, str], new: list[str]) -> str:
        if place in ("r", "n") or place.isdigit():
            if place not in made:
                made[place] = self.name({"r": "t", "n": "n"}.get(place, "h"))
                if not place.isdigit():
                    new.append(place)
            return made[place]
        special = {"error": ERRORS, "raise": RAISES, "source": SOURCES}
        if place in special:
            return self.random.choice(special[place])
        return self.leave() if place == "leave" else self.filled(place)

    def nested_block(self, row: str, level: int, depth: int) -> None:
        if row == "$block":
            self.block(level, depth + 1)
            return
        outer, loops = self.scope, self.loops
        self.scope = Scope([*outer.tensors[-2:], "v"], [*outer.ints[-2:], "n"], row[1:])
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
