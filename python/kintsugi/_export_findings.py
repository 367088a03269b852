"""What of a trace can be exported, and what can't: the plan of an export, and its report.

Operators, sizes and arithmetic on them are exported. Whatever else a trace does is not: where the results do not depend
on it (a print), the exported program goes without it; where they do, or where that can't be told, there is no export.
"""

from __future__ import annotations

import builtins
import collections
import re
import types
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

from . import _export_callees as callees
from . import _export_modes
from ._export_report import ExportFinding, ExportReport, place
from ._export_trace import BUILDERS, SCALARS, Plan, Run, Step, Trace, known_key
from .backends import fx

_WHY_UNUSED = "it changes nothing of the results"
_CURE_UNUSED = "Nothing has to change: the exported program goes without it. strict=True makes this an error."

_WHY_KERNELS = "it chooses how operators are computed: results differ by rounding at most"
_OBJECTS_STAY = (
    "objects of Python are no part of an exported program: it leaves them as they are, and what it reads of them has "
    "the value of this call"
)
_OBJECTS_CURE = (
    "What changes from call to call is to be a buffer (register_buffer), or an argument and a result."
)

# torch._check() and its relatives: what they are given holds, or the exported program raises.
_CHECKS = torch._check_with.__code__
_DATA_CURE = (
    "Write the choice with torch.where or torch.cond, or move it to the caller. What always holds can be said with "
    "torch._check()."
)


class Analysis:
    """Goes through a trace backwards: what the results need is kept."""

    def __init__(
        self,
        trace: Trace,
        model: torch.nn.Module | None,
        entry: Sequence[Any],
        breaks: Sequence[Mapping[str, Any]],
    ) -> None:
        self._trace = trace
        self._breaks = {(event["file"], event["line"]): event for event in breaks}
        self._users: dict[int, list[Step]] = {}
        self._refused_steps: set[int] = set()
        self._findings: dict[tuple[Any, ...], tuple[int, ExportFinding]] = {}
        self._kept: set[int] = set()
        self._called: set[int] = set()
        self._assigned: set[int] = set()
        self._checked: set[int] = set()
        self._needed: set[int] = set()
        self._maker = {number: step for step in trace.steps for number in step.results}
        self._pure: set[int] = set()
        self._origin = self._origins()
        self._written: list[tuple[Any, Step, str]] = []
        self._before = self._pinned()
        self._put_back: dict[Any, bool] = {}
        self._varying: dict[int, bool] = {}
        own = [] if model is None else [*model.parameters(), *model.buffers()]
        self._own = {id(leaf) for leaf in (*pytree.tree_leaves(list(entry)), *own)}
        self._buffers = {} if model is None else {id(m._buffers): m for m in model.modules()}
        self._lookup = Run(trace, Plan(), entry)

    def plan(self) -> tuple[Plan, ExportReport]:
        """What is made again, and what is not exported."""
        for step in reversed(self._trace.steps):
            self._visit(step)
        self._check_pinned_answers()
        self._check_state()
        ordered = sorted(self._findings.values(), key=lambda found: found[0])
        plan = Plan(*map(frozenset, (self._kept, self._called, self._assigned, self._checked)))
        return plan, ExportReport(tuple(finding for _, finding in ordered))

    def _origins(self) -> dict[int, str]:
        """Of numbers that are not sizes: "data" (a tensor's contents) or "step" (what a call returned)."""
        found: dict[int, str] = {}
        for step in self._trace.steps:
            if step.op.startswith("call") and self._only_computes(step):
                self._pure.add(step.index)
            given = {found[n] for o in step.operands for n in self._trace.values_in(o) if n in found}
            for number in step.results:
                tensor = self._trace.values[number] == "tensor"
                if step.op == "attempt" or (step.op.startswith("call") and step.index not in self._pure):
                    found[number] = "step"
                elif step.op == "aten" and not tensor:
                    found[number] = "data"
                elif (
                    given
                    and not (step.op == "aten" and tensor)
                    and step.op not in ("size", "stride", "numel")
                ):
                    found[number] = "step" if "step" in given else "data"
        return found

    def _only_computes(self, step: Step) -> bool:
        callee, arguments = self._trace.callee(step), step.operands[1:]
        if callees.is_seen_through(callee):
            return all(map(self._is_known, arguments))
        if callees.is_structural(callee) and all(map(self._is_made, arguments)):
            return True
        return callees.is_pure(callee) and all(map(self._is_constant, arguments))

    def _is_known(self, operand: Any) -> bool:
        """Something that hangs on no step that is not made again."""
        made = [self._maker[number] for number in self._trace.values_in(operand)]
        return all(not step.op.startswith(("call", "attempt")) or step.index in self._pure for step in made)

    def _is_made(self, operand: Any) -> bool:
        """Something that the trace makes, or a constant: no object that others may change."""
        if not isinstance(operand, tuple) or operand[0] in "#%":
            return True
        kind, number = operand
        if kind == "@":
            of, _, parts = self._trace.recipes[number]
            return of in BUILDERS and all(map(self._is_made, parts))
        return kind == "$" and self._is_constant(operand)

    def _is_constant(self, operand: Any) -> bool:
        """The same plain value in each run, or one that comes of such values alone."""
        if not isinstance(operand, tuple):
            return _is_plain(operand)
        kind, number = operand
        if kind == "#":
            return _is_plain(self._trace.constants[number])
        if kind == "@":
            of, _, parts = self._trace.recipes[number]
            return of in ("tuple", "list", "dict", "set", "frozenset", "slice") and all(
                map(self._is_constant, parts)
            )
        if kind == "$":
            begin = self._trace.sources[self._trace.root(number)]
            maker = self._maker[begin[3] or 0] if begin[0] == "value" else None
            return (
                maker is not None
                and maker.index in self._pure
                and all(map(self._is_constant, maker.operands[1:]))
            )
        return False

    def _add(self, step: Step, what: str, why: str, cure: str, left_out: bool) -> None:
        file, line, function = place(step.frames)
        key = (file, line, what, left_out)
        index, _ = self._findings.get(key, (step.index, None))
        finding = ExportFinding(file, line, function, what, why, cure, left_out)
        self._findings[key] = (min(index, step.index), finding)

    def _refuse(self, step: Step, what: str, why: str, cure: str) -> None:
        self._add(step, what, why, cure, False)

    def _leave_out(self, step: Step, what: str, why: str = _WHY_UNUSED, cure: str = _CURE_UNUSED) -> None:
        self._add(step, what, why, cure, True)

    def _keep(self, step: Step) -> None:
        self._kept.add(step.index)
        for operand in step.operands:
            self._needed |= self._trace.values_in(operand)
            self._check_recipes(step, operand)

    def _check_recipes(self, step: Step, operand: Any) -> None:
        waiting, seen = [operand], set()
        while waiting:
            item = waiting.pop()
            if isinstance(item, list):
                waiting += item
            elif isinstance(item, tuple) and item[0] == "@" and item[1] not in seen:
                seen.add(item[1])
                kind, cls, parts = self._trace.recipes[item[1]]
                waiting += parts
                if kind not in BUILDERS and kind != "cell":
                    self._refuse(
                        step,
                        f"an object of the kind {kind!r} is part of the result",
                        "an exported program returns tensors and numbers, in containers",
                        "Return what it would give: a list in place of a generator.",
                    )

    def _path(self, source: int) -> str:
        """For people: without the dict of a module's globals, which has no name."""
        return re.sub(r"^#\d+\['(\w+)'\]", r"\1", self._trace.paths[source])

    def _visit(self, step: Step) -> None:
        wanted = not self._needed.isdisjoint(step.results)
        if not wanted and any(number in self._users for number in step.results):
            self._use(step)
        if step.op == "ret":
            self._keep(step)
        elif step.op == "aten":
            if wanted or _changes_something(step):
                self._keep(step)
                self._check_writes(step)
        elif step.op in ("input", "build") or (step.op in SCALARS and step.op != "state.grad"):
            if wanted:
                self._keep(step)
        elif step.op == "state.grad":
            self._keep(step)
        elif step.op in ("guard.true", "guard.false", "guard.value", "guard.meta"):
            self._guard(step)
        elif step.op.startswith("call"):
            self._step(step, wanted)
        elif step.op.startswith("effect."):
            self._effect(step)
        elif step.op == "attempt":
            self._refuse(
                step,
                f"an exception that {callees.name_of(self._argument(step, 1))} raises is caught",
                "an exported program catches nothing",
                "Ask before: for a size, a dtype or an attribute.",
            )

    def _check_writes(self, step: Step) -> None:
        """What an operator writes to has to be an argument, a buffer or parameter, or the program's own."""
        assert step.target is not None
        schema = fx.find_operator(step.target)._schema
        for argument, operand in zip(schema.arguments, step.operands, strict=False):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            for number in self._trace.values_in(operand):
                source = self._base(number)
                if source is not None and self._is_constant_tensor(source):
                    self._refuse(
                        step,
                        f"{self._path(source)} is written to",
                        "a tensor that is no argument, buffer or parameter is a constant of an exported program",
                        _OBJECTS_CURE,
                    )

    def _base(self, number: int) -> int | None:
        """The source of the tensor that a value is, or is a view of."""
        step = self._maker[number]
        while step.op == "aten":
            assert step.target is not None
            schema = fx.find_operator(step.target)._schema
            of = [
                operand
                for argument, operand in zip(schema.arguments, step.operands, strict=False)
                if argument.alias_info is not None and isinstance(operand, tuple) and operand[0] == "%"
            ]
            if not of:
                return None
            step = self._maker[of[0][1]]
        operand = step.operands[0] if step.op == "input" else None
        return operand[1] if isinstance(operand, tuple) and operand[0] == "$" else None

    def _is_constant_tensor(self, source: int) -> bool:
        tensor = self._object(source)
        return isinstance(tensor, torch.Tensor) and id(tensor) not in self._own

    def _guard(self, step: Step) -> None:
        origins = {self._origin.get(n) for n in self._trace.values_in(step.operands[0])}
        if step.op != "guard.meta" and "step" in origins:
            self._refuse(
                step,
                "which way the program goes depends on what a call returned",
                "an exported program makes no calls, and has one way",
                "Make the choice outside of the exported function.",
            )
        elif step.op == "guard.true" and any(code is _CHECKS for *_, code in step.frames):
            self._checked.add(step.index)
            self._keep(step)
        elif step.op != "guard.meta" and "data" in origins:
            self._refuse(
                step,
                "which way the program goes depends on the values of a tensor",
                "an exported program has one way, for all values",
                _DATA_CURE,
            )
        else:
            self._keep(step)

    def _argument(self, step: Step, index: int) -> Any:
        operand = step.operands[index]
        return self._trace.constants[operand[1]] if isinstance(operand, tuple) and operand[0] == "#" else None

    def _step(self, step: Step, wanted: bool) -> None:
        callee = self._trace.callee(step)
        pure = step.op == "call.pure" or step.index in self._pure
        # A call that is not looked into may do more than give the result that nobody wants.
        if (pure and (wanted or step.op != "call")) or callees.is_operator(callee):
            if wanted or not pure:
                self._called.add(step.index)
                self._keep(step)
        elif _export_modes.is_mode(callee) or self._is_of_mode(step):
            self._keep(step)
        elif wanted or not self._leaves_tensors(step, callee):
            self._refuse_step(step, callee, wanted)
        else:
            self._leave_out_step(step, callee)

    def _refuse_step(self, step: Step, callee: Any, wanted: bool) -> None:
        self._refused_steps.add(step.index)
        if not wanted and any(
            user.index in self._refused_steps for n in step.results for user in self._users.get(n, ())
        ):
            self._use(step)
            return  # a part of that one
        self._use(step)
        name = callees.name_of(callee)
        what = (
            f"{name} gives something that the results are made of" if wanted else f"{name} may change tensors"
        )
        known = self._breaks.get(place(step.frames)[:2]) if step.op == "call" else None
        if known is not None and name.rpartition(".")[2] in known["message"]:
            why, cure = f"{known['code']}: {known['message']}", known["cure"]
        elif callees.changes_torch(callee) and not wanted:
            what = f"{name} changes a setting of torch"
            why = "an exported program has no settings that change while it runs"
            cure = "Set it before the call that is exported."
        else:
            why = "it is no operator of torch, so that an exported program can't call it"
            cure = (
                "Call it outside of the exported function, write it with torch's operators, or make a custom operator "
                "of it (torch.library.custom_op)."
            )
        self._refuse(step, what, why, cure)

    def _leave_out_step(self, step: Step, callee: Any) -> None:
        changed = [
            operand[1]
            for operand in step.operands[1:2]
            if isinstance(operand, tuple)
            and operand[0] == "$"
            and isinstance(callee, types.MethodDescriptorType)
            and isinstance(self._object(operand[1]), (list, dict, set, collections.deque, bytearray))
        ]
        for source in changed:
            what = f"{callees.name_of(callee)} is called on {self._path(source)}"
            self._written.append((self._trace.canonical(source), step, what))
            self._leave_out(step, what, _OBJECTS_STAY, _OBJECTS_CURE)
        self._use(step)
        if not changed and not (callees.is_harmless(callee) and callees.is_silent(callee)):
            logs = callees.writes_log(callee)
            why = _WHY_KERNELS if callees.chooses_kernels(callee) else _WHY_UNUSED
            self._leave_out(
                step, "a message is logged" if logs else f"{callees.name_of(callee)} is called", why
            )

    def _use(self, step: Step) -> None:
        for operand in step.operands:
            for number in self._trace.values_in(operand):
                self._users.setdefault(number, []).append(step)

    def _leaves_tensors(self, step: Step, callee: Any) -> bool:
        """Does a call leave all tensors as they are?"""
        if callees.is_harmless(callee):
            return True
        if isinstance(callee, types.BuiltinFunctionType) and callee.__self__ is builtins:
            return False
        if callees.changes_torch(callee):
            return False
        if step.op == "call.known":  # has a model: it changes no objects but its arguments
            return not any(self._may_hold_tensors(operand) for operand in step.operands[1:])
        return isinstance(callee, types.BuiltinFunctionType) and all(map(self._is_plain, step.operands[1:]))

    def _may_hold_tensors(self, operand: Any) -> bool:
        """Is it a tensor, or something that may have a tensor's memory (an array of numpy)?"""
        if isinstance(operand, list):
            return any(map(self._may_hold_tensors, operand))
        if not isinstance(operand, tuple):
            return False
        kind, number = operand
        if kind == "%":
            kinds = self._trace.values
            return kinds[number] == "tensor" or (
                kinds[number] == "object" and self._step_may(self._maker[number])
            )
        if kind == "#":
            return _is_memory(self._trace.constants[number])
        if kind == "@":
            return any(map(self._may_hold_tensors, self._trace.recipes[number][2]))
        if kind == "$":
            begin = self._trace.sources[self._trace.root(number)]
            if begin[0] == "value" and begin[3] is not None:
                return self._step_may(self._maker[begin[3]])
            return _is_memory(self._object(number))
        return False

    def _step_may(self, step: Step) -> bool:
        callee = self._trace.callee(step)
        return not callees.is_harmless(callee) and any(map(self._may_hold_tensors, step.operands[1:]))

    def _is_of_mode(self, step: Step) -> bool:
        """A method of an inference mode's object."""
        if len(step.operands) < 2:
            return False
        makers = [self._maker[n] for n in self._trace.values_in(step.operands[1])]
        return any(
            maker.op.startswith("call") and _export_modes.is_mode(self._trace.callee(maker))
            for maker in makers
        )

    def _is_plain(self, operand: Any) -> bool:
        if isinstance(operand, tuple) and operand[0] == "#":
            return _is_plain(self._trace.constants[operand[1]])
        if isinstance(operand, tuple) and operand[0] == "%":
            return self._trace.values[operand[1]] in ("int", "float", "bool")
        return not isinstance(operand, tuple) and _is_plain(operand)

    def _effect(self, step: Step) -> None:
        target, *rest = step.operands
        source = target[1] if isinstance(target, tuple) and target[0] == "$" else None
        path = "an object" if source is None else self._path(source)
        key = self._key(rest[0]) if rest and step.op != "effect.setcell" else None
        if self._is_buffer(step, source, key):
            self._assigned.add(step.index)
            self._keep(step)
            return
        if source is not None and self._is_of_attempt(source):
            return
        made = isinstance(target, tuple) and target[0] == "%"
        tensor = (made and self._trace.values[target[1]] == "tensor") or (
            source is not None and isinstance(self._object(source), torch.Tensor)
        )
        what = {
            "effect.setattr": f"{path}.{key} is set",
            "effect.delattr": f"{path}.{key} is deleted",
            "effect.setitem": f"{path}[{key!r}] is set",
            "effect.additem": f"{path}[{key!r}] is set",
            "effect.delitem": f"{path}[{key!r}] is deleted",
            "effect.takeitem": f"{path}[{key!r}] is taken out",
            "effect.setcell": f"{path} is set",
        }[step.op]
        if tensor:
            self._refuse(
                step,
                f"an attribute of a tensor is set: {key}",
                "an exported program changes the values of tensors, nothing else of them",
                "Set it outside of the exported function.",
            )
            return
        self._use(step)
        if source is not None and self._is_put_back(step, source, key):
            return
        self._leave_out(step, what, _OBJECTS_STAY, _OBJECTS_CURE)
        if source is not None:
            self._written.append((self._place_written(step.op, source, key), step, what))

    def _is_of_attempt(self, source: int) -> bool:
        """The exception that was caught."""
        begin = self._trace.sources[self._trace.root(source)]
        return begin[0] == "value" and self._maker[begin[3] or 0].op == "attempt"

    def _is_put_back(self, step: Step, source: int, key: Any) -> bool:
        """Has what an effect sets the value in the end that it had at first? Steps are visited from the last one on."""
        path = self._place_written(step.op, source, key)
        if path not in self._put_back:
            same = False
            if step.op in ("effect.setattr", "effect.setitem"):
                value = step.operands[2]
                if isinstance(value, tuple) and value[0] == "$":
                    same = self._trace.canonical(value[1]) == path
                elif path in self._before and (not isinstance(value, tuple) or value[0] == "#"):
                    value = self._trace.constants[value[1]] if isinstance(value, tuple) else value
                    before = self._before[path]
                    same = value is before or (
                        type(value) in _ATOMS and type(value) is type(before) and value == before
                    )
            self._put_back[path] = same
        return self._put_back[path]

    def _pinned(self) -> dict[Any, Any]:
        """What is known of the objects at some paths when the call begins."""
        return {
            self._trace.canonical(source): key
            for kind, source, key in reversed(self._trace.guards)
            if kind in ("equals", "is") and source is not None
        }

    def _key(self, operand: Any) -> Any:
        if isinstance(operand, tuple):
            return self._trace.constants[operand[1]] if operand[0] == "#" else operand
        return operand

    def _is_buffer(self, step: Step, source: int | None, key: Any) -> bool:
        """Is a buffer of the model given another tensor?"""
        if step.op != "effect.setitem" or source is None or not self._buffers:
            return False
        module = self._buffers.get(id(self._object(source)))
        value = step.operands[2]
        held = None if module is None else module._buffers.get(key)
        return (
            isinstance(held, torch.Tensor)
            and sum(buffer is held for m in self._buffers.values() for buffer in m._buffers.values()) == 1
            and isinstance(value, tuple)
            and value[0] in "%$"
        )

    def _object(self, source: int) -> Any:
        try:
            return self._lookup.source(source)
        except (AttributeError, IndexError, KeyError, ValueError):
            return None  # it hangs on what a step returned

    def _place_written(self, op: str, source: int, key: Any) -> Any:
        """The path of what an effect sets, as canonical() has it."""
        parent = self._trace.canonical(source)
        if op == "effect.setcell":
            return "cell", parent, known_key(None), None
        if op.endswith("attr"):
            parent = "dict", parent, known_key(None), None
        if isinstance(self._object(source), list):
            return "list", parent, known_key(None), key
        return "item", parent, known_key(key), None

    def _check_state(self) -> None:
        """What the results read, and the call has changed."""
        for step in self._trace.steps:
            if step.index not in self._kept and step.op != "ret":
                continue
            for operand in step.operands:
                for source in self._trace.sources_in(operand):
                    self._check_unwritten(source)

    def _check_unwritten(self, source: int) -> None:
        path = self._trace.canonical(source)
        while path is not None:
            for written, writer, what in self._written:
                if written == path:
                    self._refuse(
                        writer,
                        f"{self._path(source)} is read, and changed by the call itself ({what})",
                        "the state of Python objects is no part of an exported program",
                        "Make it a buffer (register_buffer), or an argument and a result.",
                    )
                    return
            path = path[1]

    def _check_pinned_answers(self) -> None:
        """What a step answered, and the program went on by."""
        for kind, source, key in self._trace.guards:
            if source is None or kind not in _PINS:
                continue
            root = self._trace.sources[self._trace.root(source)]
            if root[0] != "value" or root[3] not in self._maker:
                continue
            step = self._maker[root[3]]
            if not step.op.startswith("call") or step.index in self._refused_steps:
                continue
            callee = self._trace.callee(step)
            if not self._answers_alike(step, callee, kind, key):
                self._refuse(
                    step,
                    f"which way the program goes depends on what {callees.name_of(callee)} returned",
                    "an exported program makes no calls, and has one way",
                    "Make the choice outside of the exported function.",
                )

    def _answers_alike(self, step: Step, callee: Any, kind: str, key: Any) -> bool:
        """Does a step give what was pinned of its result in each run?"""
        if _export_modes.is_mode(callee) or self._is_of_mode(step):
            return True
        if callees.is_operator(callee):
            return kind == "length" or (kind == "is" and key is None)  # the form of what an operator gives
        given = {n for operand in step.operands for n in self._trace.values_in(operand)}
        if any(map(self._varies, given)):
            return False
        if step.index in self._pure or step.op == "call.pure":
            return True
        tensors = any(self._trace.values[n] == "tensor" for n in given)
        known = callees.is_harmless(callee) and callees.answers_alike(callee)
        return known and (not tensors or callees.asks_form(callee))

    def _varies(self, number: int) -> bool:
        """May a value that is no tensor be another one for other values of the tensors, or at another time?"""
        if number not in self._varying:
            step = self._maker[number]
            given = {n for operand in step.operands for n in self._trace.values_in(operand)}
            if step.op == "aten":
                varies = self._trace.values[number] != "tensor"
            elif step.op.startswith("call"):
                varies = not self._answers_alike(step, self._trace.callee(step), "equals", number)
            else:
                varies = step.op not in ("size", "stride", "numel") and any(map(self._varies, given))
            self._varying[number] = varies
        return self._varying[number]


_ATOMS = (bool, int, str, bytes)
_PLAIN = (*_ATOMS, float, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)

# Kinds of guards that pin more than what an object is.
_PINS = frozenset(("equals", "is", "length", "keys", "set", "lacks", "same"))


def _changes_something(step: Step) -> bool:
    """An operator that runs for more than its results: it writes, checks, or draws random numbers."""
    assert step.target is not None
    overload = fx.find_operator(step.target)
    schema = overload._schema
    return schema.is_mutable or not schema.returns or torch.Tag.nondeterministic_seeded in overload.tags


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, frozenset)):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN)


def _is_memory(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or hasattr(type(value), "__array_interface__")
