"""Programs that torch.compile breaks: autograd function."""

import torch

leaf = torch.ones(4, 5, requires_grad=True)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y=None):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return (g * 2, None)


class Jvp(Double):
    @staticmethod
    def jvp(ctx, t):
        return t * 2


def gb0144(x):
    return Jvp.apply(leaf * x)


def gb6297(x):
    return Double.apply(leaf, leaf)


class KeywordOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, *, k):
        return x * k

    @staticmethod
    def backward(ctx, g):
        return g


def gb4372(x):
    return KeywordOnly.apply(leaf * x, k=2)


class Callable_:
    def __call__(self, ctx, x):
        return x * 2


class OddForward(torch.autograd.Function):
    forward = Callable_()

    @staticmethod
    def backward(ctx, g):
        return g


def gb0346(x):
    return OddForward.apply(leaf * x)


class Materialize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx._materialize_non_diff_grads = False
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g


def gb0347(x):
    return Materialize.apply(leaf * x)


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g


def gb2464(x):
    return Dirty.apply(leaf * x)


class Odd(torch.autograd.Function):
    extra = 3

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g

    @property
    def prop(self):
        return 3


def gb0140(x):
    return Odd.extra(x)


class Escapes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        kept.append(ctx)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g


kept = []


def gb0019(x):
    return Escapes.apply(leaf * x)


def problem(x):
    return Jvp.apply(leaf * x)


def workaround_1(x):
    return Double.apply(leaf * x)
