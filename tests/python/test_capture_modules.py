"""Modules, parameters, hooks and references that a call makes, and objects in sets: eager's results, in one trace."""

from __future__ import annotations

import itertools
import weakref

import torch
import torch.nn.functional as F
from harness import Case, Suite, check, check_captured
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

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


def _loader(**how):
    data = TensorDataset(torch.arange(24.0).view(6, 4), torch.arange(6))
    return DataLoader(data, batch_size=2, **how)


@factory(traces=2)  # the first one in a process makes torch's profiler ready
def make_data_loader():
    loader = _loader()

    def f(x):
        for rows, labels in loader:
            x = x + rows.sum(0) * labels.sum()
        return x, len(loader)

    return f


@factory(traces=None)
def make_shuffled_data_loader():
    loader = _loader(shuffle=True)

    def f(x):
        for turn, (rows, labels) in enumerate(loader):
            x = x * (turn + 1) + rows.sum(0) * labels.sum()
        return x

    return f


class Doubled:
    def __init__(self, *items):
        self.items = items

    def __iter__(self):
        return iter([item * 2 for item in self.items])


@factory()
def make_unknown_iterables_unpacked():
    numbers = Doubled(1, 2.5)

    def f(x):
        return [0, *numbers], (*itertools.islice(numbers, 1), x), list(enumerate(numbers))

    return f


@SUITE.parametrize()
def test_equal(case: Case) -> None:
    check(case)


@SUITE.parametrize()
def test_captured(case: Case) -> None:
    check_captured(case)
