"""Module classes of any installed package, made by their signatures: `arguments`, `inputs` and a seeded choice.

Nobody here has written programs after these packages, so they show what the product does with code that it was not
developed on. A class is built by guessing: each required argument gets a value that its name suggests, and the
forward gets tensors of the usual forms (rows, sequences, images, tokens) until one call runs in eager mode. What can't
be called so is left out.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import itertools
import pkgutil
import random
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy
import torch
from torch import nn

from bench.models.spec import TINY, Dims, Inputs, ModelSpec

# What an argument of a constructor is, by its name: the first pattern that is found in it. `w` is the width that all
# arguments for widths share.
_BY_NAME: tuple[tuple[str, Callable[[int], Any]], ...] = (
    (r"kernel|window|patch", lambda w: 3),
    (r"heads?$|n_?heads?|groups?$", lambda w: 2),
    (r"vocab|num_tokens|num_embeddings|n_token", lambda w: 32),
    (r"class|n_?outputs?$|num_labels", lambda w: 5),
    (r"image_size|img_size|input_size_hw", lambda w: 16),
    (r"seq_len|max_len|n_times|length|num_patches|n_samples", lambda w: 64),
    (r"sfreq|sample_rate|sr$", lambda w: 100),
    (r"depth|layers|blocks|stages|n_?rep|iters|num_experts|steps", lambda w: 2),
    (r"stride|dilation|scale|factor|ratio|rate$|expansion|mult", lambda w: 1),
    (r"padding|pad$", lambda w: 1),
    (r"drop|prob|^p$|eps|alpha|beta|gamma|temperature", lambda w: 0.1),
    (r"act|nonlin", lambda w: "relu"),
    (r"norm", lambda w: nn.LayerNorm),
    (r"bias|use_|causal|^is_|flag", lambda w: True),
    (r"fn$|^net$|module|layer$|encoder|model|func", lambda w: nn.Linear(w, w)),
    (r"shape$|_dims$|sizes$|channels_list|hidden_dims", lambda w: (w, w)),
    (
        r"dim|channel|feature|width|size|planes|embed|hidden|chans|in_|out_|^d_|^n_|^in$|^c$|num_|nf|units",
        lambda w: w,
    ),
)
_WIDTHS = (16, 8, 3, 32, 64)

# Arguments of a forward, likewise; `form` is one of _FORMS.
_TOKENS = re.compile(r"ids$|tokens?|idx|index|labels?$|words|^seq$")
_MASKS = re.compile(r"mask")
_TIMES = re.compile(r"^t$|time|step|sigma|noise_level")
_FORMS: tuple[tuple[str, Callable[[int], tuple[int, ...]]], ...] = (
    ("sequence", lambda w: (2, 6, w)),
    ("image", lambda w: (2, w, 16, 16)),
    ("rows", lambda w: (4, w)),
    ("signal", lambda w: (2, w, 64)),
    ("picture", lambda w: (2, 3, 32, 32)),
    ("large", lambda w: (1, 3, 64, 64)),
    ("volume", lambda w: (1, w, 8, 8, 8)),
    ("wave", lambda w: (2, 400)),
    ("tokens", lambda w: (2, 8)),
    ("heads", lambda w: (2, 2, 6, w)),
)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a class is made and called. `width` and `form` are what was guessed."""

    module: str
    name: str
    width: int
    form: str

    @property
    def label(self) -> str:
        return f"unseen/{self.module}.{self.name}"


def classes(package: str) -> Iterator[type[nn.Module]]:
    """The module classes that a package defines, in its own order. What can't be imported is passed over."""
    seen: set[type] = set()
    for module in _modules(package):
        for value in list(vars(module).values()):
            if (
                isinstance(value, type)
                and issubclass(value, nn.Module)
                and value.__module__ == module.__name__
                and value not in seen
            ):
                seen.add(value)
                yield value


def _modules(package: str) -> Iterator[Any]:
    try:
        root = importlib.import_module(package)
    except BaseException:  # packages of strangers end the process, too
        return
    yield root
    for found in pkgutil.walk_packages(getattr(root, "__path__", ()), package + ".", onerror=lambda _: None):
        if re.search(r"test|example|__main__|cli|script|train|benchmark|export", found.name):
            continue
        try:
            yield importlib.import_module(found.name)
        except BaseException:
            continue


def _argument(name: str, parameter: inspect.Parameter, width: int) -> Any:
    for pattern, value in _BY_NAME:
        if re.search(pattern, name.lower()):
            return value(width)
    return {int: width, float: 0.1, bool: True, str: "relu"}.get(parameter.annotation, width)


def make(cls: type[nn.Module], width: int) -> nn.Module:
    """An instance whose required arguments are guessed."""
    options = {
        name: _argument(name, parameter, width)
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    return cls(**options)


def inputs(module: nn.Module, width: int, form: str) -> Inputs:
    """Tensors for the required arguments of the forward, drawn from torch's generator."""
    shape = dict(_FORMS)[form](width)
    args: list[Any] = []
    for name, parameter in inspect.signature(module.forward).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL and not args:
            args.append(torch.randn(shape))
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            continue
        if parameter.default is not parameter.empty:
            break
        args.append(_input(name, shape, form))
    return tuple(args), {}


def _input(name: str, shape: tuple[int, ...], form: str) -> torch.Tensor:
    if _MASKS.search(name):
        return torch.ones(shape[:2], dtype=torch.bool)
    if _TIMES.search(name):
        return torch.rand(shape[0])
    if form == "tokens" or _TOKENS.search(name):
        return torch.randint(0, 5, shape[:2])
    return torch.randn(shape)


def found(cls: type[nn.Module], works: Callable[[ModelSpec], None]) -> Recipe | None:
    """The first guess with which the class can be made and called. `works` raises where it can't."""
    for width in _WIDTHS:
        try:
            module = make(cls, width)
        except Exception:
            continue
        if type(module).forward is nn.Module.forward or _is_container(module):
            return None
        for form, _ in _FORMS:
            recipe = Recipe(cls.__module__, cls.__name__, width, form)
            try:
                with torch.no_grad():
                    module(*inputs(module, width, form)[0])
                works(spec(recipe))
            except Exception:
                continue
            return recipe
    return None


def _is_container(module: nn.Module) -> bool:
    """One of torch's containers, which can't be called."""
    return isinstance(module, (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict))


def _build(recipe: Recipe, _: Dims) -> nn.Module:
    # Some draw numbers of every kind when they are made, and two of one recipe are compared.
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    return make(getattr(importlib.import_module(recipe.module), recipe.name), recipe.width)


def _inputs(recipe: Recipe, module: nn.Module, _: Dims) -> Inputs:
    return inputs(module, recipe.width, recipe.form)


def spec(recipe: Recipe) -> ModelSpec:
    """The class as a model of the registry."""
    return ModelSpec(
        recipe.label,
        "unseen",
        functools.partial(_build, recipe),
        functools.partial(_inputs, recipe),
        sizes={"tiny": TINY},
        transformers=False,
    )


def chosen(found_of: Mapping[str, list[Recipe]], count: int, seed: int) -> list[Recipe]:
    """`count` recipes, drawn by turns from the packages so that none of them fills the sample."""
    order = random.Random(seed)
    piles = [order.sample(found_of[package], len(found_of[package])) for package in sorted(found_of)]
    order.shuffle(piles)
    turns = itertools.chain.from_iterable(itertools.zip_longest(*piles))
    return [recipe for recipe in turns if recipe is not None][:count]
