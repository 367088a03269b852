"""Programs that torch.compile breaks: inlined function."""

import sys
import types
import unittest.mock

import torch

DYNAMO = {"gb0269": {"debug_force_graph_break_on_leaf_return": True}}


def gb7312(x):
    return takes_one(x, 1, 2)


def takes_one(x):
    return x


def gb0008(x):
    import unittest.mock

    return (unittest.mock.Mock()(), x + 1)


def gb9277(x):
    return (types.FunctionType.__get__(len, 3), x + 1)


lib = torch.library.Library("kintsugi_kb2", "DEF")

lib.define("odd(Tensor x) -> Tensor")

lib.impl("odd", lambda x: x + 1, "CompositeImplicitAutograd")

lib.define("meta(Tensor x) -> Tensor")

lib.impl("meta", lambda x: x + 1, "CPU")


def gb0022(x):
    import kb_odd_module

    return x


sys.modules["kb_odd_module"] = 3


class FakeMod:
    pass


sys.modules["kb_odd_module2"] = FakeMod()


def gb0354(x):
    return odd_builtin(x)


odd_builtin = types.FunctionType((lambda x: nothing_here(x)).__code__, {"__builtins__": {}})

comp = torch.compile(lambda v: v.item() if False else v + 1, backend="aot_eager")


def gb0149(x):
    return torch.func.vmap(torch.compiler.disable(lambda v: comp(v)))(x)


def gb0269(x):
    return x + 1


mocked = unittest.mock.Mock(return_value=2)


def problem(x):
    return x + mocked()


def two():
    return 2


def workaround_1(x):
    return x + two()
