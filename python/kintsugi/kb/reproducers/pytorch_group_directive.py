"""Programs that torch.compile breaks: directive."""

import torch


@torch._dynamo.nonstrict_trace
def nonstrict(x, *a):
    return x + 1


class Point:
    pass


point = Point()


def gb0236(x):
    return nonstrict(x, point)


def gb0078(x):

    def f(x):
        return x + 1

    return torch._dynamo.nonstrict_trace(f)(x)


@torch._dynamo.nonstrict_trace
def returns_object(x):
    return point


def gb0251(x):
    return (returns_object(x), x + 1)


class Const:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return self.n == other.n

    def __hash__(self):
        return 1


torch.utils._pytree.register_constant(Const)


def gb0238(x):
    return nonstrict(x, Const(1))


class Bad:
    def __init__(self, x):
        self.x = x


class Ctx:
    pass


torch.utils._pytree.register_pytree_node(Bad, lambda b: ((b.x,), Ctx()), lambda v, c: Bad(*v))


def gb0239(x):
    return nonstrict(x, Bad(x))


def gb4297(x):
    torch._dynamo.skip_frame()
    return x + 1


def gb4636(x):
    torch._dynamo.step_unsupported()
    return x + 1


def gb0275(x):
    if x.shape[0] == 4:
        with torch.no_grad():
            torch._dynamo.step_unsupported()
    return x + 1


def gb0284(x):
    with torch._dynamo.error_on_graph_break(True):
        torch._dynamo.step_unsupported()
    return x + 1


def gb0030(x):

    @torch._dynamo.comptime.comptime
    def _(ctx):
        ctx.graph_break()

    return x + 1


def problem(x):
    torch._dynamo.skip_frame()
    return x + 1


def workaround_1(x):
    return x + 1
