"""kintsugi.export(): the whole graph of a call as a torch.export.ExportedProgram.

The call is recorded, on the real arguments. What the trace computes then runs once more under torch.export, in the
forward of a module that has the signature, parameters and buffers of the original, under their names: so the program
that comes out is torch's own. The code of the program never sees what torch.export puts in place of tensors.
"""

from __future__ import annotations

import contextlib
import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

from . import _C, _config, _logs
from ._callable import CompiledFunction
from ._errors import export_error
from ._export_callees import name_of
from ._export_findings import Analysis
from ._export_report import ExportFinding, ExportReport, finding_of
from ._export_trace import Plan, Run, Step, Trace
from ._marks import error_on_graph_break
from ._module import CompiledModule

# What a program makes when it runs for the first time, and functions that can't be looked into, are known then.
_ATTEMPTS = 4


def export(
    model: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
) -> torch.export.ExportedProgram:
    """The whole graph of `model(*args, **kwargs)` as a torch.export.ExportedProgram.

    * `model`: an nn.Module, a function or another callable, compiled or not. Its parameters and buffers keep their
      names; writes to buffers and arguments are outputs of the program, as torch.export has them.
    * `args`, `kwargs`: of one call, which is made, with all it does (prints, say); buffers and arguments have
      their old values afterwards.
    * `dynamic_shapes`: sizes that may vary, as torch.export.export takes them.
    * `strict`: False: what has no influence on the results (prints, counters) is left out, with a warning. True: that
      is an error, too.

    What can't be exported (a branch on a tensor's values, a call that is not looked into) raises kintsugi.ExportError,
    which lists all of it by line of the program. docs/howto/export.md has more.
    """
    _check_arguments(args, kwargs, strict)
    call = _Call(_original(model), args, dict(kwargs or {}))
    plan, report = call.analyse(dynamic_shapes is not None)
    if not report.exportable:
        raise export_error(report, "This call can't be exported:")
    if strict and report.findings:
        raise export_error(
            report, "strict=True, and an exported program goes without some of what this call does:"
        )
    program = call.export(plan, dynamic_shapes)
    if report.findings:
        _logs.warn(f"kintsugi.export: the exported program goes without some of what the call does. {report}")
    return program


def export_report(
    model: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
) -> ExportReport:
    """What of `model(*args, **kwargs)` kintsugi.export() would refuse or leave out. The call is made, as there.

    Sizes that an operator or the program itself can't leave open are found by export() alone.
    """
    _check_arguments(args, kwargs, False)
    call = _Call(_original(model), args, dict(kwargs or {}))
    return call.analyse(dynamic_shapes is not None)[1]


def _check_arguments(args: Any, kwargs: Any, strict: Any) -> None:
    if not isinstance(args, tuple):
        raise TypeError(
            f"kintsugi.export: args must be a tuple of positional arguments, got {type(args).__name__}."
        )
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise TypeError(f"kintsugi.export: kwargs must be a dict, got {type(kwargs).__name__}.")
    if not isinstance(strict, bool):
        raise TypeError(f"kintsugi.export: strict must be True or False, got {strict!r}.")


def _original(model: Any) -> Any:
    if isinstance(model, CompiledModule):
        return model._orig_mod
    if isinstance(model, CompiledFunction):
        return model.__wrapped__
    if isinstance(model, types.MethodType) and isinstance(model.__func__, CompiledFunction):
        return types.MethodType(model.__func__.__wrapped__, model.__self__)
    if isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        raise TypeError("kintsugi.export can't take what torch.jit has made: export the original.")
    if not callable(model):
        raise TypeError(
            f"kintsugi.export expects an nn.Module or another callable, got {type(model).__name__}."
        )
    return model


class _Call:
    """One call that is exported."""

    def __init__(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._model = model
        self._module = model if isinstance(model, torch.nn.Module) else None
        self._target = _target(model)
        self._args, self._kwargs = _apart(self._module, args, kwargs)
        self._trace: Trace | None = None

    def analyse(self, dynamic: bool) -> tuple[Plan, ExportReport]:
        """Records the call; if it can't be exported, again: a first call makes much ready that others find."""
        found = self._analyse(dynamic)
        if found[1].exportable:
            return found
        trace, self._trace = self._trace, None
        again = self._analyse(dynamic)
        if not again[1].exportable:
            self._trace = trace
            return found
        return again

    def _analyse(self, dynamic: bool) -> tuple[Plan, ExportReport]:
        core = _C.Compiled(self._target, {"exporting": True, "dynamic": dynamic})
        data = self._record(core)
        if data is None:
            findings = tuple(map(_finding_of_break, core.breaks())) or (_unrecorded(self._target),)
            return Plan(), ExportReport(findings)
        self._trace = Trace(data)
        entry = self._entry(self._args, self._kwargs)
        return Analysis(self._trace, self._module, entry, core.breaks()).plan()

    def _record(self, core: _C.Compiled) -> dict[str, Any] | None:
        config = _config.current()
        assert config is not None
        for _ in range(_ATTEMPTS):
            # Containers of our own: what the call does to them is not seen outside.
            args, kwargs = pytree.tree_map(lambda leaf: leaf, (self._args, self._kwargs))
            with (
                _kept(self._module, (self._args, self._kwargs)),
                error_on_graph_break(False),
                config.patch(audit=0),
            ):
                core(*args, **kwargs)
            found = core._data()
            if found:
                return found[-1]
        return None

    def _entry(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The arguments as the trace counts them: a bound `self` first, keywords last."""
        assert self._trace is not None
        bound = []
        if self._trace.arguments > len(args):
            bound = [self._target.__self__]
        return [*bound, *args, *(kwargs[name] for name in self._trace.keywords)]

    def _name(self, step: Step) -> str:
        assert self._trace is not None
        return name_of(self._trace.callee(step)) if step.op.startswith("call") else step.target or step.op

    def export(self, plan: Plan, dynamic_shapes: Any) -> torch.export.ExportedProgram:
        """What the trace computes, under torch.export."""
        runs: list[Run] = []

        def forward(self_: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            assert self._trace is not None
            runs.append(Run(self._trace, plan, self._entry(args, kwargs)))
            return runs[-1].run()

        module = _stand_in(self._module, forward, _signature(self._model))
        try:
            return torch.export.export(
                module, self._args, self._kwargs, dynamic_shapes=dynamic_shapes, strict=False
            )
        except Exception as error:
            step = runs[-1].at if runs else None
            if step is None:  # it is about the arguments, dynamic_shapes or the program as a whole
                raise
            report = ExportReport((finding_of(step, self._name(step), error),))
            raise export_error(report, "This call can't be exported:") from error


def _apart(module: torch.nn.Module | None, args: Any, kwargs: Any) -> Any:
    """The arguments with each tensor once: an exported program takes one for each place."""
    seen = set() if module is None else {id(t) for t in (*module.parameters(), *module.buffers())}

    def once(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) in seen:
            return leaf.detach().clone().requires_grad_(leaf.requires_grad)
        seen.add(id(leaf))
        return leaf

    return pytree.tree_map(once, (args, kwargs))


def _target(model: Any) -> Any:
    """What is recorded: a function in Python, or a bound one."""
    if isinstance(model, torch.nn.Module):
        return model.__call__
    if isinstance(model, (types.FunctionType, types.MethodType)):
        return model

    def call(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    return call


def _finding_of_break(event: Mapping[str, Any]) -> ExportFinding:
    return ExportFinding(
        event["file"], event["line"], event["function"], event["message"], event["code"], event["cure"], False
    )


def _unrecorded(target: Any) -> ExportFinding:
    code = getattr(inspect.unwrap(target), "__code__", None)
    file, line = ("", 0) if code is None else (code.co_filename, code.co_firstlineno)
    return ExportFinding(
        file,
        line,
        getattr(target, "__qualname__", repr(target)),
        "the call is not recorded",
        "it runs in eager mode",
        "kintsugi.explain() says more.",
        False,
    )


@contextlib.contextmanager
def _kept(module: torch.nn.Module | None, arguments: Any) -> Iterator[None]:
    """Buffers, tensors of the arguments and the generators of random numbers are afterwards what they were."""
    modules = [] if module is None else [m for m in module.modules() if type(m._buffers) is dict]
    buffers = [(m, dict(m._buffers)) for m in modules]
    tensors = [b for _, named in buffers for b in named.values() if b is not None]
    tensors += [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
    saved = [(t, t._version, _form(t), t.detach().clone()) for t in tensors if not t.is_inference()]
    try:
        with torch.random.fork_rng():
            yield
    finally:
        for each, named in buffers:
            each._buffers.clear()
            each._buffers.update(named)
        with torch.no_grad():
            for tensor, version, form, value in saved:
                if form != _form(tensor):
                    tensor.as_strided_(*form)
                if tensor._version != version or not _equal(tensor, value):
                    tensor.copy_(value)


def _form(tensor: torch.Tensor) -> Any:
    return (
        (tensor.size(), tensor.stride(), tensor.storage_offset()) if tensor.layout is torch.strided else None
    )


def _equal(tensor: torch.Tensor, value: torch.Tensor) -> bool:
    """Of tensors of the same form. Some operators write and don't count it (batch_norm)."""
    return tensor.layout is not torch.strided or tensor.is_quantized or torch.equal(tensor, value)


def _signature(model: Any) -> inspect.Signature | None:
    """Of a forward, with its `self`."""
    function = model.forward if isinstance(model, torch.nn.Module) else model
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    taken = [p.replace(name="self_") if p.name == "self" else p for p in found.parameters.values()]
    return found.replace(parameters=[own, *taken])


class _Function(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """What the module of an exported function is an instance of."""


def _stand_in(
    module: torch.nn.Module | None, forward: Callable[..., Any], signature: inspect.Signature | None
) -> torch.nn.Module:
    """A module with another forward, that has the parameters, buffers and submodules of the original, and no hooks."""
    if signature is not None:
        forward.__signature__ = signature  # type: ignore[attr-defined]
    cls = _Function if module is None else type(module)
    names = {"forward": forward, "__module__": cls.__module__, "__qualname__": cls.__qualname__}
    made: torch.nn.Module = type(cls.__name__, (torch.nn.Module,), names)()
    if module is None:
        return made
    for part in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
        made.__dict__[part] = module.__dict__[part]
    made.training = module.training
    for key, value in vars(module).items():
        if isinstance(value, torch.Tensor):
            made.__dict__[key] = value  # torch.export names constants by the attributes that hold them
    return made


__all__ = ["ExportFinding", "ExportReport", "export", "export_report"]
