"""Torch's higher-order operators as the Python control flow that they are, so that the recorder sees into them.

Torch has its own compiler look at what an operator is given, and then runs it. Here its compiler still says what is
wrong with the functions (`inlined`, while a call is recorded, and never again), and what eager mode would compute is
recorded like the program's own code. Which calls these functions replace is decided in
csrc/capture/calls/higher_order.cc; each takes what torch's `_hop_compile_and_call` takes.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from types import CellType, FunctionType
from typing import Any

import torch
from torch._higher_order_ops import utils as hop_utils
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from kintsugi._marks import assume_constant_result

_LEAVES = frozenset((torch.Tensor, torch.nn.Parameter))


class _Traced(Exception):
    """Leaves the code that torch's compiler has made, before it runs."""


class _Operator:
    """What torch's compiler has found out about a call: the graph, and the tensors that go into it."""

    def __init__(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> None:
        self.graph = graph
        self.inputs = inputs

    def nests(self) -> bool:
        """Are there operators in what the operator is given?"""
        inner = [module for module in self.graph.modules() if module is not self.graph]
        graphs = [module.graph for module in inner if isinstance(module, torch.fx.GraphModule)]
        nodes = itertools.chain.from_iterable(graph.nodes for graph in graphs)
        return any(isinstance(node.target, torch._ops.HigherOrderOperator) for node in nodes)

    def branch(self, at: int) -> tuple[torch.fx.GraphModule, list[Any]]:
        """One of the functions that cond is given, and what it is called with."""
        nodes = self.graph.graph.nodes
        values = dict(zip([node for node in nodes if node.op == "placeholder"], self.inputs, strict=True))
        (call,) = [node for node in nodes if node.target is torch.ops.higher_order.cond]
        return getattr(self.graph, str(call.args[1 + at].target)), [values[arg] for arg in call.args[3]]


def _copied(value: Any, made: dict[int, Any]) -> Any:
    """`value` with its functions copied. torch's compiler keeps weak references to functions that it sees, and the
    recorder would take these for the program's."""
    if id(value) in made:
        return made[id(value)]
    if type(value) in (tuple, list):
        return type(value)(_copied(item, made) for item in value)
    if type(value) is functools.partial:
        rest = {name: _copied(item, made) for name, item in value.keywords.items()}
        return functools.partial(_copied(value.func, made), *_copied(value.args, made), **rest)
    if type(value) is not FunctionType:
        return value
    cells = tuple([CellType() for _ in value.__closure__ or ()])
    copy = FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, cells or None)
    copy.__kwdefaults__ = value.__kwdefaults__
    copy.__qualname__ = value.__qualname__
    copy.__module__ = value.__module__
    copy.__dict__.update(value.__dict__)
    made[id(value)] = copy
    for mine, theirs in zip(cells, value.__closure__ or (), strict=True):
        try:
            content = theirs.cell_contents
        except ValueError:  # empty
            continue
        mine.cell_contents = _copied(content, made) if type(content) is FunctionType else content
    return copy


def _traced(fn: FunctionType, args: Any) -> _Operator | None:
    """None: torch's compiler refuses the call, which the operator itself will say."""
    from torch._dynamo import eval_frame

    seen: list[_Operator] = []

    def backend(graph: torch.fx.GraphModule, _examples: Any) -> Callable[..., Any]:
        def leave(*inputs: Any) -> Any:
            seen.append(_Operator(graph, inputs))
            raise _Traced

        return leave

    # What torch's compiler keeps for a piece of code goes with that code.
    alone, args = _copied((fn, args), {})
    alone.__code__ = fn.__code__.replace()
    with hop_utils.setup_compilation_env():
        frames = eval_frame.set_fullgraph_compiled_frame_count(0)
        try:
            torch.compile(alone, backend=backend, fullgraph=True, dynamic=False)(*args)
        except _Traced:
            return seen[0]
        except Exception:
            return None
        finally:
            eval_frame.set_fullgraph_compiled_frame_count(frames)
    return None


def _watched() -> bool:
    """Somebody wants to see the operator itself."""
    return bool(
        torch._C._len_torch_function_stack()
        or (
            torch.is_grad_enabled() and torch._C._autograd._top_saved_tensors_default_hooks(False) is not None
        )
        or torch._C._len_torch_dispatch_stack()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._get_tracing_state() is not None
        or torch.jit.is_scripting()
        or torch.compiler.is_exporting()
    )


def _differentiable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _reached(value: torch.Tensor) -> set[tuple[Any, int]]:
    """Where gradients of it go."""
    if not value.requires_grad:
        return set()
    edge = torch.autograd.graph.get_gradient_edge(value)
    seen, open_ = set(), [(edge.node, edge.output_nr)]
    while open_:
        at = open_.pop()
        if at[0] is not None and at not in seen:
            seen.add(at)
            open_.extend(at[0].next_functions)
    return seen


def _edge(leaf: torch.Tensor) -> tuple[Any, int]:
    edge = torch.autograd.graph.get_gradient_edge(leaf)
    return edge.node, edge.output_nr


def _all_reach(results: Sequence[Any], leaves: Sequence[torch.Tensor]) -> bool:
    edges = [_edge(leaf) for leaf in leaves]
    return all(
        edge in reached
        for reached in [_reached(result) for result in results if _differentiable(result)]
        for edge in edges
    )


def _stand_in(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    made = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=value.device)
    return made.requires_grad_(value.requires_grad)


def _keeps_gradients(operator: _Operator, branch: int | None, leaves: Sequence[Any]) -> bool:
    """An operator gives each of its inputs a gradient, if one of zeros, in one piece; and each result has one.

    `joined` and `apart` make up for arguments. What a branch reads besides has to have one influence on every result:
    it runs once on tensors without data to find out. What a loop reads besides would get its gradient in another order.
    """
    given = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    wanted = [value for value in operator.inputs if wants_gradient(value)]
    free = [value for value in wanted if not any(value is leaf for leaf in given)]
    if wanted and any(leaf.is_complex() or leaf.device != given[0].device for leaf in given):
        return False
    if not free:
        return True
    if branch is None:
        return False
    body, values = operator.branch(branch)
    places = [node for node in body.graph.nodes if node.op == "placeholder"]
    with FakeTensorMode(allow_non_fake_inputs=True), torch.enable_grad():
        stand_ins = [_stand_in(value) for value in values]
        results = pytree.tree_leaves(body(*stand_ins))
    reads = [at for at, value in enumerate(values) if any(value is one for one in free)]
    once = all(len(places[at].users) == 1 for at in reads)
    return once and len(reads) == len(free) and _all_reach(results, [stand_ins[at] for at in reads])


def _is_ordinary(kwargs: Any, leaves: Sequence[Any]) -> bool:
    return not (
        kwargs or _watched() or any(type(leaf) not in _LEAVES for leaf in leaves if not isinstance(leaf, int))
    )


@assume_constant_result
def inlined(fn: FunctionType, args: Any, kwargs: Any, leaves: Sequence[Any]) -> bool:
    """Is the call one that the functions below compute? Torch's compiler has a look at it. `leaves`: the arguments."""
    if not _is_ordinary(kwargs, leaves):
        return False
    try:
        operator = _traced(fn, args)
        return operator is not None and (
            not torch.is_grad_enabled() or _keeps_gradients(operator, None, leaves)
        )
    except Exception:
        return False


_FEW = 16  # operators


@functools.cache
def _copying() -> frozenset[Any]:
    """Operators that fill or copy, all overloads of each."""
    aten = torch.ops.aten
    return frozenset((aten.full, aten.scalar_tensor, aten.clone, aten._to_copy, aten.lift_fresh_copy))


class _Simple(TorchDispatchMode):  # type: ignore[misc]
    """Are all operators elementwise ones, or views, which can't fail and draw nothing, whatever the data are?"""

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)  # super() would look for this frame, which is hidden
        self.left = _FEW

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [value for value in pytree.tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
        integers = [value for value in tensors if not _is_safe(value)]
        elementwise = torch.Tag.pointwise in func.tags and not integers  # those divide
        draws = torch.Tag.nondeterministic_seeded in func.tags
        simple = elementwise or func.is_view or func.overloadpacket in _copying()
        if func._schema.is_mutable or draws or not simple:
            self.left = 0
        self.left -= 1
        return func(*args, **(kwargs or {}))


def _is_safe(value: torch.Tensor) -> bool:
    return value.is_floating_point() or value.dtype is torch.bool


def _same_layout(a: Any, b: Any) -> bool:
    """Does torch.where() of them look like each of them?"""
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor) or not _is_safe(a):
        return False
    either = torch.where(torch.empty((), dtype=torch.bool, device=a.device), a, b)
    looks = [(value.dtype, value.device, value.shape, value.stride()) for value in (a, b, either)]
    return looks[0] == looks[1] == looks[2]


def _selects(operator: _Operator) -> bool:
    """Are both branches of cond a few elementwise operators, so that both are computed and nothing is decided?"""
    if torch.is_grad_enabled() and any(map(wants_gradient, operator.inputs)):
        return False
    if operator.nests():
        return False
    made = []
    with FakeTensorMode(), torch.no_grad():
        for at in range(2):
            body, values = operator.branch(at)
            stand_ins = [_stand_in(value) for value in values]
            with _Simple() as simple:
                made.append(pytree.tree_leaves(body(*stand_ins)))
            if simple.left < 0:
                return False
        return all(itertools.starmap(_same_layout, zip(*made, strict=True)))


@assume_constant_result
def way_of_cond(fn: FunctionType, args: Any, kwargs: Any, leaves: Sequence[Any]) -> str:
    """How to compute it: "both" branches, "one" of them, or "step": as torch does."""
    if not _is_ordinary(kwargs, leaves):
        return "step"
    try:
        operator = _traced(fn, args)
        if operator is None:
            return "step"
        if isinstance(args[0], torch.Tensor) and _selects(operator):
            return "both"
        taken = 0 if args[0] else 1
        return "one" if not torch.is_grad_enabled() or _keeps_gradients(operator, taken, leaves) else "step"
    except Exception:
        return "step"


@assume_constant_result
def unreached(results: Sequence[Any], leaves: Sequence[Any]) -> list[tuple[int, int]]:
    """Which results have no gradient for which of the arguments that want one."""
    wanted = [(i, _edge(leaf)) for i, leaf in enumerate(leaves) if wants_gradient(leaf)]
    return [
        (k, i)
        for k, result in enumerate(results)
        if _differentiable(result)
        for i, edge in wanted
        if edge not in _reached(result)
    ]


def wants_gradient(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad


def is_training(leaves: Sequence[Any]) -> bool:
    wanted = [leaf for leaf in leaves if wants_gradient(leaf)]  # asked of all: it is guarded
    return torch.is_grad_enabled() and len(wanted) > 0


def joined(results: Any, leaves: Sequence[Any]) -> Any:
    """The results, with a gradient of zeros for each argument that they don't depend on."""
    flat, spec = pytree.tree_flatten(results)
    for k, i in unreached(flat, leaves):
        flat[k] = flat[k] - leaves[i].unsqueeze(0)[:0].sum()
    return pytree.tree_unflatten(flat, spec)


def apart(value: Any) -> Any:
    """The same tensor, whose gradients are summed before they reach it."""
    return value.view_as(value) if wants_gradient(value) else value


def for_each(value: Any, count: int) -> Sequence[Any]:
    """An argument of each iteration: the gradients of all are summed at once."""
    return value.expand(count, *value.shape).unbind(0) if wants_gradient(value) else [value] * count


def cond(fn: FunctionType, args: Any, kwargs: Any = None) -> Any:
    pred, true_fn, false_fn, operands = args
    leaves = pytree.tree_leaves(operands)
    training = is_training(leaves)
    way = way_of_cond(fn, args, kwargs, leaves)
    if way == "step":
        return hop_utils._hop_compile_and_call(fn, args, kwargs)
    if way == "both":
        return selected(pred, true_fn(*operands), false_fn(*operands))
    if training:
        operands = pytree.tree_map(apart, operands)
    results = true_fn(*operands) if pred else false_fn(*operands)
    return joined(results, leaves) if training else results


def selected(pred: torch.Tensor, some: Any, others: Any) -> Any:
    chosen = pred.reshape(()) if pred.dtype is torch.bool else pred.reshape(()) != 0
    flat, spec = pytree.tree_flatten(some)
    pairs = zip(flat, pytree.tree_leaves(others), strict=True)
    return pytree.tree_unflatten([torch.where(chosen, a, b) for a, b in pairs], spec)


def while_loop(fn: FunctionType, args: Any, kwargs: Any = None) -> Any:
    cond_fn, body_fn, carried, more = args
    leaves = [*carried, *more]
    training = is_training(leaves)
    if not inlined(fn, args, kwargs, leaves):
        return hop_utils._hop_compile_and_call(fn, args, kwargs)
    going = cond_fn(*carried, *more)
    if not going:  # copies, in a structure that only the operator knows
        return hop_utils._hop_compile_and_call(fn, args, kwargs)
    results: Any = [apart(value) for value in carried]
    while going:
        results = body_fn(*pytree.tree_leaves(results), *more)
        going = cond_fn(*pytree.tree_leaves(results), *more)
    return joined(results, leaves) if training else results


def map_(fn: FunctionType, args: Any, kwargs: Any = None) -> Any:
    function, xs, more = args
    leaves = [*xs, *more]
    training = is_training(leaves)
    if not inlined(fn, args, kwargs, leaves):
        return hop_utils._hop_compile_and_call(fn, args, kwargs)
    results = fn(function, xs, more)  # which calls map_rows in the place of the operator
    return joined(results, leaves) if training else results


def map_rows(function: Callable[..., Any], xs: Sequence[Any], more: Sequence[Any]) -> Any:
    rows = [x.unbind(0) for x in xs]
    others = [for_each(value, len(rows[0])) for value in more]
    made = []
    for at in range(len(rows[0])):
        made.append(function(*[x[at] for x in rows], *[value[at] for value in others]))
    return hop_utils._stack_pytree(made)


def scan(fn: FunctionType, args: Any, kwargs: Any = None) -> Any:
    combine, carried, xs = args
    leaves = [*carried, *xs]
    training = is_training(leaves)
    if not xs or not inlined(fn, args, kwargs, leaves):
        return hop_utils._hop_compile_and_call(fn, args, kwargs)
    rows = [x.unbind(0) for x in xs]
    made = []
    carry: Any = [apart(value) for value in carried]
    for at in range(len(rows[0])):
        carry, row = combine(*pytree.tree_leaves(carry), *[x[at] for x in rows])
        made.append(row)
    results = (carry, hop_utils._stack_pytree(made))
    return joined(results, leaves) if training else results


def checkpoint(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Where no gradients are wanted there is nothing to compute again: it is a call. (Other options: not replaced.)"""
    options.pop("use_reentrant")
    options.pop("preserve_rng_state", True)
    return function(*args, **options)


# torch.nn.attention.flex_attention


def no_surroundings() -> Any:
    """setup_compilation_env(): nothing is compiled."""
    return contextlib.nullcontext("eager")


def compiled_flex_attention(function: FunctionType, **_options: Any) -> Callable[..., Any]:
    """torch.compile(), of what torch hands to it here."""

    def call(*args: Any) -> Any:
        return flex_attention(function, args)

    return call


class EmptyBlockMask:
    """Stands for the mask of flex_attention() that is given none: little is asked of it. It never leaves the trace."""

    def __init__(self, query: torch.Tensor, key: torch.Tensor) -> None:
        from torch.nn.attention.flex_attention import _LARGE_SPARSE_BLOCK_SIZE, noop_mask

        self.query = query
        self.key = key
        self.kv_num_blocks = query
        self.mask_mod = noop_mask
        self.BLOCK_SIZE = (_LARGE_SPARSE_BLOCK_SIZE, _LARGE_SPARSE_BLOCK_SIZE)

    def as_tuple(self) -> tuple[Any, ...]:
        return (self, self.mask_mod)


def empty_block_mask(query: torch.Tensor, key: torch.Tensor) -> EmptyBlockMask:
    return EmptyBlockMask(query, key)


def _as_torch_has_it(args: Any) -> Any:
    mask = args[4]
    if type(mask[0]) is not EmptyBlockMask:
        return args
    from torch.nn.attention.flex_attention import _create_empty_block_mask

    return (*args[:4], _create_empty_block_mask(mask[0].query, mask[0].key).as_tuple(), *args[5:])


def flex_attention(fn: FunctionType, args: Any, kwargs: Any = None) -> Any:
    """What torch computes without a fused kernel. With gradients it has formulas of its own for these."""
    query, key, value, score_mod, block_mask, scale, _options = args
    fits = query.size(0) == key.size(0) or (query.size(0) > 1 and key.size(0) == 1)
    casts = torch.is_autocast_enabled(query.device.type)
    if is_training(args[:3]) or casts or not fits or not inlined_attention(fn, args):
        return hop_utils._hop_compile_and_call(fn, _as_torch_has_it(args), kwargs)
    groups = query.size(1) // key.size(1)
    value = torch.repeat_interleave(value, groups, dim=1)
    key = torch.repeat_interleave(key, groups, dim=1)
    key = key.expand((query.size(0), *key.size()[1:]))
    value = value.expand((query.size(0), *value.size()[1:]))
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = query.to(wide) @ key.to(wide).transpose(-2, -1)
    scores = modified_scores((scores * scale).to(wide), score_mod, block_mask[-1])
    logsumexp = scores.logsumexp(dim=-1)
    masked = torch.all(scores == -float("inf"), dim=-1)
    logsumexp = torch.where(masked, -float("inf"), logsumexp)
    largest = torch.max(scores, dim=-1)[0]
    weights = torch._safe_softmax(scores, dim=-1)
    out = weights.to(query.dtype) @ value.to(query.dtype)
    return _in_layout_of(out, query), logsumexp / math.log(2), largest / math.log(2)


@assume_constant_result
def inlined_attention(fn: FunctionType, args: Any) -> bool:
    return bool(inlined(fn, _as_torch_has_it(args), None, args[:3]))


def modified_scores(scores: torch.Tensor, score_mod: Any, mask_mod: Any) -> torch.Tensor:
    from torch.nn.attention.flex_attention import _vmap_for_bhqkv

    b, h, m, n = [torch.arange(0, scores.size(at), device=scores.device) for at in range(4)]
    return torch.where(
        _vmap_for_bhqkv(mask_mod, prefix=())(b, h, m, n),
        _vmap_for_bhqkv(score_mod, prefix=(0,))(scores, b, h, m, n),
        torch.tensor(-float("inf"), dtype=scores.dtype, device=scores.device),
    )


def index_by_tensors(self: torch.Tensor, index: Any) -> torch.Tensor:
    """self[i] of a function that is given its indices one by one, for all of them at once."""
    indices = [
        torch.tensor(at, dtype=torch.int64, device=self.device) if isinstance(at, int) else at
        for at in pytree.tree_leaves(index)
    ]
    return torch.ops.aten.index(self, indices)


def _in_layout_of(out: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """A copy whose dimensions lie in memory as those of `query` do, the last one innermost."""
    steps = query.stride()
    order: list[int] = []
    for at in range(len(steps)):  # of equal ones the last comes first
        place = 0
        while place < len(order) and steps[order[place]] < steps[at]:
            place += 1
        order.insert(place, at)
    strides = _dense_strides(out.shape, order)
    if strides[-1] != 1:
        order.remove(out.dim() - 1)
        strides = _dense_strides(out.shape, [out.dim() - 1, *order])
    made = out.new_empty_strided(out.shape, strides)
    made.copy_(out)
    return made


def _dense_strides(sizes: Sequence[int], order: Sequence[int]) -> list[int]:
    strides = [0] * len(sizes)
    step = 1
    for at in order:
        strides[at] = step
        step *= sizes[at]
    return strides
