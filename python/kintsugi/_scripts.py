"""TorchScript's functions and methods as Python functions, which the recorder runs in their place.

The graph of a script is written as Python code that calls the same operators in the same order, with TorchScript's `if`
and loops as Python's. So an operator of it is one of the trace, and a decision is one that the trace can be left at.
A graph with anything that this file does not know is left as it is, and so is a call with arguments that TorchScript
would convert first.

An operator that raises does so in TorchScript's words: the script itself is called again. Where it has written
something or drawn random numbers by then, it can't be: the error has the same type, and its message lacks TorchScript's
traceback.
"""

from __future__ import annotations

import keyword
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Any

import torch


class Unknown(Exception):
    """The graph has something that has no Python form here."""


# Operators on numbers, lists and strings, which are none of the dispatcher's: by the kinds of their operands, since
# TorchScript computes with C++'s numbers and compares with C++'s operators. What is not listed has no Python form
# here: texts are bytes there, 7.0 // 2.0 is floor(7.0 / 2.0), and NaN in a list equals nothing.
_INTS, _FLOATS, _MIXED, _MIXED_TOO = (
    ("IntType", "IntType"),
    ("FloatType", "FloatType"),
    ("IntType", "FloatType"),
    ("FloatType", "IntType"),
)
_REAL = (_FLOATS, _MIXED, _MIXED_TOO)
_SAME = (_INTS, _FLOATS, ("BoolType", "BoolType"))
_ARITHMETIC = {
    "aten::add": (("wrapped({0} + {1})", (_INTS,)), ("{0} + {1}", _REAL)),
    "aten::sub": (("wrapped({0} - {1})", (_INTS,)), ("{0} - {1}", _REAL)),
    "aten::mul": (("wrapped({0} * {1})", (_INTS,)), ("{0} * {1}", _REAL)),
    "aten::div": (("quotient({0}, {1})", (_INTS, *_REAL)),),
    "aten::floordiv": (("wrapped({0} // {1})", (_INTS,)),),
    "aten::remainder": (("remainder({0}, {1})", (_INTS,)),),
    "aten::lt": (("{0} < {1}", _SAME),),
    "aten::gt": (("{0} > {1}", _SAME),),
    "aten::le": (("{0} <= {1}", _SAME),),
    "aten::ge": (("{0} >= {1}", _SAME),),
    "aten::eq": (("{0} == {1}", (*_SAME, ("StringType", "StringType"), ("int[]", "int[]"))),),
    "aten::ne": (("{0} != {1}", (*_SAME, ("StringType", "StringType"), ("int[]", "int[]"))),),
}
# These may raise in Python what they don't in C++, or another error: the script is called again.
_MAY_RAISE = {
    "aten::div",
    "aten::floordiv",
    "aten::remainder",
    "aten::Int",
    "aten::IntImplicit",
    "aten::Float",
    "aten::FloatImplicit",
}
_IDENTITY = {"aten::__is__": "is", "aten::__isnot__": "is not"}
_PLAIN = {
    "aten::__not__": "not {0}",
    "aten::len": "len({0})",
    "aten::__getitem__": "{0}[{1}]",
    "aten::Bool": "bool({0})",
    "aten::Int": "whole({0})",
    "aten::Float": "real({0})",
    "aten::IntImplicit": "whole({0})",
    "aten::FloatImplicit": "real({0})",
    "aten::list": "list({0})",
    "aten::copy": "list({0})",
    "prim::unchecked_cast": "{0}",
    "prim::Uninitialized": "None",
    "prim::TupleIndex": "{0}[{1}]",
}
# Questions about a tensor.
_OF_TENSOR = {
    "aten::size": "list({0}.size())",
    "aten::size.int": "{0}.size({1})",
    "aten::dim": "{0}.dim()",
    "aten::numel": "{0}.numel()",
    "aten::len.Tensor": "len({0})",
    "aten::is_floating_point": "{0}.is_floating_point()",
    "aten::is_complex": "{0}.is_complex()",
    "aten::item": "{0}.item()",
    "prim::device": "{0}.device",
    "prim::is_cuda": "{0}.is_cuda",
    "prim::requires_grad": "{0}.requires_grad",
}
_NUMBERS = {"IntType", "FloatType", "BoolType", "NumberType", "StringType", "NoneType"}


def _is_number(value: Any) -> bool:
    return value.type().kind() in _NUMBERS


def _kind(value: Any) -> str:
    kind: str = value.type().kind()
    return "int[]" if kind == "ListType" and value.type().getElementType().kind() == "IntType" else kind


def _overload(node: Any) -> str:
    """`aten::mul.Scalar`, of the schema that the node was compiled for."""
    schema: str = node.schema()
    if schema == "(no schema)":
        raise Unknown(node.kind())
    return schema.partition("(")[0]


def _blocks(block: Any) -> Iterator[Any]:
    """All nodes, those inside others too."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _blocks(inner)


def _operator_of(node: Any) -> torch._ops.OpOverload | None:
    """The dispatcher's operator that the node calls."""
    schema: str = node.schema()
    qualified = schema.partition("(")[0]
    namespace, _, rest = qualified.partition("::")
    if not rest or not torch._C._dispatch_has_kernel(qualified):
        return None
    name, _, overload = rest.partition(".")
    found = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")
    return found if isinstance(found, torch._ops.OpOverload) else None


def _acts(node: Any) -> bool:
    operator = _operator_of(node)
    if operator is None:
        return False
    # Running statistics are written to without a word in the schema.
    names = {argument.name for argument in operator._schema.arguments}
    return (
        bool(operator._schema.is_mutable)
        or torch.Tag.nondeterministic_seeded in operator.tags
        or "running_mean" in names
    )


class _Writer:
    """Writes one graph."""

    def __init__(self, graph: Any, owner: Any | None) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self.attributes: dict[tuple[str, ...], str] = {}  # of the module that a method is of: their variables
        self._modules: dict[str, tuple[str, ...]] = {}  # values that are the module, or one inside it
        self._names: dict[str, str] = {}
        # Does it write, or draw random numbers? Then it can't be called again where something raises.
        self._acts = any(map(_acts, _blocks(graph)))
        inputs = list(graph.inputs())
        if owner is not None:
            self._modules[inputs.pop(0).debugName()] = ()
        self.inputs = [self._name(value) for value in inputs]
        self._block(graph, 1)
        outputs = [self._name(value) for value in graph.outputs()]
        self._line(2, f"return {outputs[0]}")
        if len(outputs) != 1:
            raise Unknown("several outputs")

    @property
    def acts(self) -> bool:
        return self._acts

    def _line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def _name(self, value: Any) -> str:
        if value.debugName() in self._modules:
            raise Unknown("a module as a value")
        return self._names.setdefault(value.debugName(), f"v{len(self._names)}")

    def _constant(self, value: Any) -> str:
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def _block(self, block: Any, depth: int) -> None:
        before = len(self.lines)
        for node in block.nodes():
            self._node(node, depth + 1)
        if len(self.lines) == before:
            self._line(depth + 1, "pass")

    def _node(self, node: Any, depth: int) -> None:
        kind = node.kind()
        special = getattr(self, "_" + kind.replace("::", "_"), None)
        if special is not None:
            special(node, depth)
            return
        arguments = [self._name(value) for value in node.inputs()]
        outputs = [self._name(value) for value in node.outputs()]
        text = self._plain(node, arguments) or self._operator(node, arguments)
        self._line(depth, f"{', '.join(outputs)} = {text}" if outputs else text)

    def _plain(self, node: Any, arguments: Sequence[str]) -> str | None:
        kind, given = node.kind(), list(node.inputs())
        if given and given[0].type().kind() == "TensorType":
            known = _OF_TENSOR.get(kind if kind.startswith("prim::") else _overload(node))
            if known is not None:
                return known.format(*arguments)
            return self._known_plain(node, arguments) if kind in _PLAIN and self._makes_number(node) else None
        if any(value.type().kind() == "TensorType" for value in given):
            return None
        if kind in _IDENTITY:
            return f"{arguments[0]} {_IDENTITY[kind]} {arguments[1]}"
        if kind == "aten::neg" and _kind(given[0]) in ("IntType", "FloatType"):
            return f"wrapped(-{arguments[0]})" if _kind(given[0]) == "IntType" else f"-{arguments[0]}"
        if kind in _ARITHMETIC:
            return self._arithmetic(node, arguments)
        if kind == "aten::__contains__" and _kind(given[0]) in ("int[]", "DictType"):
            return f"{arguments[1]} in {arguments[0]}"
        return self._known_plain(node, arguments) if kind in _PLAIN else None

    def _arithmetic(self, node: Any, arguments: Sequence[str]) -> str:
        kinds = tuple(map(_kind, node.inputs()))
        if all(kind == "ListType" or kind == "int[]" for kind in kinds) and node.kind() == "aten::add":
            return f"{arguments[0]} + {arguments[1]}"
        for form, taken in _ARITHMETIC[node.kind()]:
            if kinds in taken:
                self._may_raise(node)
                return form.format(*arguments)
        raise Unknown(_overload(node))

    def _known_plain(self, node: Any, arguments: Sequence[str]) -> str:
        if node.kind().startswith("aten::") and any(_kind(value) == "StringType" for value in node.inputs()):
            of_dict = node.kind() == "aten::__getitem__" and _kind(next(iter(node.inputs()))) == "DictType"
            if not of_dict:
                raise Unknown(_overload(node))
        if (
            node.kind() == "aten::__getitem__"
            and _kind(next(iter(node.inputs()))) == "DictType"
            and self._acts
        ):
            raise Unknown(_overload(node))  # a missing key is another error there
        self._may_raise(node)
        return _PLAIN[node.kind()].format(*arguments)

    def _may_raise(self, node: Any) -> None:
        if self._acts and node.kind() in _MAY_RAISE:
            raise Unknown(_overload(node))

    @staticmethod
    def _makes_number(node: Any) -> bool:
        return all(map(_is_number, node.outputs()))

    def _operator(self, node: Any, arguments: Sequence[str]) -> str:
        """A call of the dispatcher's."""
        operator = _operator_of(node)
        if operator is None:
            raise Unknown(_overload(node))
        schema = operator._schema
        if not all(str(each.type) in ("Tensor", "List[Tensor]", "Tensor[]") for each in schema.returns):
            raise Unknown(str(operator))
        given = [
            f"{argument.name}={text}" if argument.kwarg_only else text
            for argument, text in zip(schema.arguments, arguments, strict=True)
        ]
        return f"{self._constant(operator)}({', '.join(given)})"

    def _prim_GetAttr(self, node: Any, depth: int) -> None:
        output = node.output()
        path = (*self._modules[node.input().debugName()], node.s("name"))
        if output.type().kind() == "ClassType":
            self._modules[output.debugName()] = path
        else:
            self._line(
                depth,
                f"{self._name(output)} = {self.attributes.setdefault(path, f'a{len(self.attributes)}')}",
            )

    def _prim_Constant(self, node: Any, depth: int) -> None:
        output = node.output()
        value = output.toIValue()
        if isinstance(value, torch.Tensor) and value.requires_grad:
            raise Unknown("a constant with a gradient")
        if isinstance(value, (list, dict)):
            raise Unknown("a constant that can be changed")
        self._line(depth, f"{self._name(output)} = {self._constant(value)}")

    def _prim_ListConstruct(self, node: Any, depth: int) -> None:
        items = ", ".join(self._name(value) for value in node.inputs())
        self._line(depth, f"{self._name(node.output())} = [{items}]")

    def _prim_TupleConstruct(self, node: Any, depth: int) -> None:
        if not node.output().type().annotation_str.startswith("Tuple["):
            raise Unknown("a named tuple")
        items = "".join(self._name(value) + ", " for value in node.inputs())
        self._line(depth, f"{self._name(node.output())} = ({items})")

    def _prim_DictConstruct(self, node: Any, depth: int) -> None:
        given = [self._name(value) for value in node.inputs()]
        pairs = ", ".join(f"{k}: {v}" for k, v in zip(given[::2], given[1::2], strict=True))
        self._line(depth, f"{self._name(node.output())} = {{{pairs}}}")

    def _prim_TupleUnpack(self, node: Any, depth: int) -> None:
        targets = "".join(self._name(value) + ", " for value in node.outputs())
        self._line(depth, f"({targets}) = {self._name(node.input())}")

    _prim_ListUnpack = _prim_TupleUnpack

    def _prim_NumToTensor(self, node: Any, depth: int) -> None:
        """Traced sizes: a number that becomes a tensor, to be a number again."""
        uses = list(node.output().uses())
        if not all(
            use.user.kind() in ("aten::Int", "aten::IntImplicit", "aten::ScalarImplicit") for use in uses
        ):
            raise Unknown("a tensor of a size")
        self._line(depth, f"{self._name(node.output())} = {self._name(node.input())}")

    def _aten_ScalarImplicit(self, node: Any, depth: int) -> None:
        given = node.input()
        text = self._name(given)
        if given.node().kind() != "prim::NumToTensor":
            text += ".item()"
        self._line(depth, f"{self._name(node.output())} = {text}")

    def _aten_append(self, node: Any, depth: int) -> None:
        target, item = [self._name(value) for value in node.inputs()]
        self._line(depth, f"{target}.append({item})")
        self._line(depth, f"{self._name(node.output())} = {target}")

    def _aten_format(self, node: Any, depth: int) -> None:
        """For messages of what is raised: numbers elsewhere are written as C++ writes them."""
        if not all(use.user.kind() == "prim::RaiseException" for use in node.output().uses()):
            raise Unknown("aten::format")
        text, *given = [self._name(value) for value in node.inputs()]
        self._line(depth, f"{self._name(node.output())} = {text}.format({', '.join(given)})")

    def _prim_RaiseException(self, node: Any, depth: int) -> None:
        given = self._name(next(iter(node.inputs())))
        self._line(depth, f"raise Error({given})" if self._acts else "raise Again")

    def _prim_If(self, node: Any, depth: int) -> None:
        names = [self._name(value) for value in node.outputs()]
        for word, block in zip((f"if {self._name(node.input())}:", "else:"), node.blocks(), strict=True):
            self._line(depth, word)
            self._block(block, depth)
            self._assign(names, list(block.outputs()), depth + 1)

    def _assign(self, names: Sequence[str], values: Sequence[Any], depth: int) -> None:
        if names:
            given = "".join(self._name(value) + ", " for value in values)
            self._line(depth, f"({''.join(name + ', ' for name in names)}) = ({given})")

    def _prim_Loop(self, node: Any, depth: int) -> None:
        limit, goes_on, *carried = [self._name(value) for value in node.inputs()]
        (block,) = node.blocks()
        index, *inner = list(block.inputs())
        again, *results = list(block.outputs())
        count, turn = f"n{len(self.lines)}", self._name(index)
        names = [self._name(value) for value in inner]
        if names:
            given = "".join(name + ", " for name in carried)
            self._line(depth, f"({''.join(name + ', ' for name in names)}) = ({given})")
        if _is_true(list(node.inputs())[1]) and _is_true(again):
            self._line(depth, f"for {turn} in range({limit}):")
            self._block(block, depth)
            self._assign(names, results, depth + 1)
        else:
            self._line(depth, f"{count}, {count}_on = 0, {goes_on}")
            self._line(depth, f"while {count} < {limit} and {count}_on:")
            self._line(depth + 1, f"{turn} = {count}")
            self._block(block, depth)
            self._assign(names, results, depth + 1)
            self._line(depth + 1, f"{count}, {count}_on = {count} + 1, {self._name(again)}")
        self._assign([self._name(value) for value in node.outputs()], inner, depth)


def _is_true(value: Any) -> bool:
    """Is it the constant True?"""
    return value.node().kind() == "prim::Constant" and value.toIValue() is True


class Again(Exception):
    """The script raises here, or computes what Python does not: it is called again."""


_LEAST, _MOST = -(2**63), 2**63 - 1


def wrapped(number: int) -> int:
    """As 64 bits have it."""
    if _LEAST <= number <= _MOST:
        return number
    return (number - _LEAST) % 2**64 + _LEAST


def quotient(left: float, right: float) -> float:
    if right == 0:
        raise Again  # infinite or NaN there
    return float(left) / float(right)


def remainder(left: int, right: int) -> int:
    if right == 0 or abs(right) > 2**62:
        raise Again  # an error, or a sum that wraps
    return left % right


def whole(value: Any) -> int:
    """Of a number or a tensor."""
    if isinstance(value, torch.Tensor):
        value = value.item()
    if isinstance(value, float) and not -(2.0**63) <= value < 2.0**63:
        raise Again
    return int(value)


def real(value: Any) -> float:
    """Of a number or a tensor."""
    return float(value.item() if isinstance(value, torch.Tensor) else value)


def _parameters(arguments: Sequence[Any]) -> list[str]:
    made = []
    for argument in arguments:
        if not argument.name.isidentifier() or keyword.iskeyword(argument.name) or argument.kwarg_only:
            raise Unknown(argument.name)
        text = argument.name
        if argument.has_default_value():
            value = argument.default_value
            if value is not None and not isinstance(value, (bool, int, float, str)):
                raise Unknown("a default")
            text += f"={value!r}"
        made.append(text)
    return made


def attributes(owner: Any, paths: Sequence[tuple[str, ...]]) -> tuple[Any, ...]:
    """What a method reads of its module. A step of the trace: parameters may be others in each call."""
    found = []
    for path in paths:
        value = owner
        for name in path:
            value = value.getattr(name)
        found.append(value)
    return tuple(found)


def called_python(error: BaseException, own: CodeType) -> bool:
    """Was the error raised by code of the program's, which an operator has called?"""
    entry = error.__traceback__
    while entry is not None and entry.tb_next is not None:
        entry = entry.tb_next
    return entry is not None and entry.tb_frame.f_code not in (own, torch._ops.OpOverload.__call__.__code__)


def _arguments(script: Any) -> list[Any]:
    """Without the module of a method."""
    return list(script.schema.arguments)[isinstance(script, torch._C.ScriptMethod) :]


def _made(script: Any) -> Callable[..., Any]:
    owner = script.owner if isinstance(script, torch._C.ScriptMethod) else None
    writer = _Writer(script.inlined_graph, owner)
    arguments = _arguments(script)
    parameters = _parameters(arguments)
    names = [argument.name for argument in arguments]
    head = "".join(f"    {v} = {name}\n" for v, name in zip(writer.inputs, names, strict=True))
    if writer.attributes:
        head += f"    {', '.join(writer.attributes.values())}, = attributes(owner, paths)\n"
    body = "\n".join(writer.lines)
    if not writer.acts:
        handlers = (
            "    except Again:\n        pass\n"
            "    except Raised as error:\n        if called_python(error, script_graph.__code__):\n            raise\n"
        )
        body = f"    try:\n{body}\n{handlers}    return script({', '.join(names)})\n"
    else:
        body = f"    if True:\n{body}\n"
    source = f"def script_graph({', '.join(parameters)}):\n{head}{body}"
    space = {
        **writer.constants,
        "script": script,
        "owner": owner,
        "paths": tuple(writer.attributes),
        "attributes": attributes,
        "called_python": called_python,
        "wrapped": wrapped,
        "quotient": quotient,
        "remainder": remainder,
        "whole": whole,
        "real": real,
        "Again": Again,
        "Error": torch.jit.Error,
        "Raised": Exception,
    }
    exec(compile(source, "<torch.jit>", "exec"), space)
    made: Callable[..., Any] = space["script_graph"]
    return made


_functions: weakref.WeakKeyDictionary[Any, Callable[..., Any] | None] = weakref.WeakKeyDictionary()

_TYPES = {"Tensor": torch.Tensor, "int": int, "float": float, "bool": bool, "str": str}


def _fits(expected: Any, given: Any) -> bool:
    """Is it taken as it is?"""
    kind = expected.kind()
    if kind == "OptionalType":
        return given is None or _fits(expected.getElementType(), given)
    if kind == "TensorType":
        return isinstance(given, torch.Tensor)
    if type(given) is int and not _LEAST <= given <= _MOST:
        return False
    return type(given) is _TYPES.get(str(expected))


def function_of(
    script: Any, given: tuple[Any, ...], names: tuple[str, ...] | None
) -> Callable[..., Any] | None:
    """The function that does what the script does with these arguments, the last ones by name; None: there is none."""
    try:
        made = _functions[script]
    except KeyError:
        try:
            made = _made(script)
        except Exception:  # of whatever the graph has that is not known here
            made = None
        _functions[script] = made
    if made is None or torch._C._is_any_autocast_enabled():  # TorchScript has an autocast of its own
        return None
    # Hooks see what the script saves for its backward, which is not what its operators save: a checkpoint counts.
    if torch._C._autograd._top_saved_tensors_default_hooks(False) is not None:
        return None
    arguments = _arguments(script)
    types = {argument.name: argument.type for argument in arguments}
    keywords = names or ()
    positional = zip(arguments, given[: len(given) - len(keywords)], strict=False)
    named = zip(keywords, given[len(given) - len(keywords) :], strict=True)
    taken = [(argument.type, value) for argument, value in positional]
    taken += [(types[name], value) for name, value in named if name in types]
    return made if all(_fits(expected, value) for expected, value in taken) else None
