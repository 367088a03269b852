"""Programs that torch.compile breaks: tensor subclass."""

import types

import torch


class Sub(torch.Tensor):
    def foo(self):
        return self + 1

    def sin(self):
        return self.cos()

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


sub = torch.ones(4, 5).as_subclass(Sub)


def gb0163(x):
    return (sub.grad_fn, sub._base, x)


class N(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.add or func is torch.Tensor.add:
            return NotImplemented
        return super().__torch_function__(func, types, args, kwargs or {})


n = torch.ones(4, 5).as_subclass(N)


def gb0000(x):
    return torch.add(n, x)


class Subclass(torch.Tensor):
    @property
    def shape2(self):
        return 3

    def sin(self):
        return super().sin()

    T = 3

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


subclass = torch.ones(4, 5).as_subclass(Subclass)


def gb0164(x):
    return subclass.T + x


def gb0026(x):
    return Subclass(x, 3)


class Renamed(torch.Tensor):
    T = 3
    three = 3


renamed = torch.ones(4, 5).as_subclass(Renamed)


def problem(x):
    return x + renamed.T


def workaround_1(x):
    return x + renamed.three
