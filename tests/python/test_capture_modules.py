"""Modules, parameters, hooks and references that a call makes, and objects in sets: eager's results, in one trace."""

from __future__ import annotations

import weakref

import torch
import torch.nn.functional as F
from harness import Case, Suite, check, check_captured
from torch import nn

SUITE = Suite()
case, factory = SUITE.case, SUITE.factory


class Attention(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.query = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.0)
        self.scale = scale

    def forward(self, x):
        return self.drop(self.query(x)) * self.scale


class Switching(nn.Module):
    """A call makes new layers, which keep the weights of the old ones, where another kind is asked for."""

    def __init__(self):
        super().__init__()
        self.attention, self.kind = Attention(1), "full"

    def forward(self, x):
        kind = "sparse" if x.shape[0] == 3 else "full"
        if kind != self.kind:
            made = Attention(2)
            made.query = self.attention.query
            self.attention, self.kind = made, kind
            self.attention.train(self.training)
        return self.attention(x)


@factory(traces=2)
def make_module_made_in_a_call():
    torch.manual_seed(1)
    m = Switching().eval()
    return m.__call__, m


@factory(traces=2, grad=True)
def make_hooks_installed_in_a_call():
    torch.manual_seed(1)
    m, seen = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), []

    def f(x):
        if not getattr(m, "ready", False):
            for layer in m:
                layer.register_forward_hook(lambda module, args, out: seen.append(out) or out * 2)
            m.ready = True
        return m(x)

    return f, seen  # the numbers of hooks are counted in the whole process


@case(grad=True)
def parameters_made_inside(x):
    plain, frozen = nn.Parameter(x.detach() * 2), nn.Parameter(x.detach(), requires_grad=False)
    return plain * x, plain.requires_grad, type(plain), frozen.requires_grad, frozen


@factory()
def make_weak_references():
    layer = nn.ReLU()
    kept = weakref.ref(layer)

    def f(x):
        fresh = weakref.ref(layer)
        return kept()(x), kept() is layer, fresh is kept, fresh() is layer

    return f, layer


@factory()
def make_dead_weak_reference():
    kept = weakref.ref(nn.ReLU())
    return lambda x: x + 1 if kept() is None else x


@case()
def objects_in_sets(x):
    first, second, old = Attention(1), Attention(2), F
    found = {old}
    found.add(first)
    found.add(first)
    answers = first in found, second in found, old in found, len(found), nn in found
    seen = set()
    for layer in (first, second, first):
        if layer not in seen:
            seen.add(layer)
            x = x + layer.scale
    return x, answers, len(seen)


@SUITE.parametrize()
def test_equal(case: Case) -> None:
    check(case)


@SUITE.parametrize()
def test_captured(case: Case) -> None:
    check_captured(case)
