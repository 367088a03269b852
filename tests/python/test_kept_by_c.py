"""What a callable that C code keeps reaches are the very objects that the call gives back.

Each program makes containers or objects, gives a callable over them to C code that keeps it (hooks of autograd, of
modules and of weak references, partials, threads, handlers), and returns them beside a function that has the callable
called. So what the callable writes to, and what the caller got, are one object, in each call.
"""

from __future__ import annotations

import collections
import contextvars
import functools
import itertools
import queue
import signal
import sys
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import harness
import pytest
import torch

import kintsugi

BACKENDS = ["eager", "native"]
CALLS = 4


class Note:
    """An object of the program's with methods, which is also called."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.count = 0

    def add(self, *args: Any) -> None:
        self.log.append(len(args))
        self.count += 1

    def __call__(self, *args: Any) -> None:
        self.count += 10

    @classmethod
    def made(cls) -> Note:
        return cls()


class Target:
    """Something that weak references can be taken of."""


# How a callable is made over objects of the call: the callable, and what it reaches.


def list_append() -> Any:
    seen: list[Any] = []
    return seen.append, seen


def list_append_to_items() -> Any:
    seen: list[Any] = [0, [1]]
    return seen[1].append, seen


def dict_setdefault() -> Any:
    seen: dict[Any, Any] = {}
    return seen.setdefault, seen


def dict_update_kwargs() -> Any:
    seen: dict[Any, Any] = {"n": 0}
    return functools.partial(one_more, seen), seen


def set_add() -> Any:
    seen: set[Any] = set()
    return seen.add, seen


def deque_append() -> Any:
    seen: collections.deque[Any] = collections.deque()
    return seen.append, seen


def one_more(seen: dict[str, Any], *args: Any) -> None:
    seen["n"] += 1


def of_pair(pair: Any, *args: Any) -> None:
    pair[0].append(1)


def by_name(*args: Any, seen: list[Any]) -> None:
    seen.append(len(args))


def object_method() -> Any:
    note = Note()
    return note.add, note


def object_itself() -> Any:
    note = Note()
    return note, note


def object_of_classmethod() -> Any:
    note = Note.made()
    return note.add, note


def list_of_object() -> Any:
    note = Note()
    return note.log.append, note


def partial_of_append() -> Any:
    seen: list[Any] = []
    return functools.partial(seen.append), seen


def partial_of_function() -> Any:
    seen: list[Any] = []
    return functools.partial(of_pair, (seen, 1)), seen


def partial_by_name() -> Any:
    seen: list[Any] = []
    return functools.partial(by_name, seen=seen), seen


def partial_of_method() -> Any:
    note = Note()
    return functools.partial(note.add, 1), note


def partial_of_partial() -> Any:
    seen: list[Any] = []
    return functools.partial(functools.partial(of_pair, (seen,)), 2), seen


def method_type() -> Any:
    seen: dict[str, Any] = {"n": 1}
    return types.MethodType(one_more, seen), seen


def method_of_append() -> Any:
    seen: list[Any] = []
    return types.MethodType(of_pair, (seen,)), seen


def method_in_c() -> Any:
    seen: list[Any] = []
    method = types.MethodType(list.append, seen)
    return method, (method, seen.append, seen)


def closure() -> Any:
    seen: list[Any] = []
    return lambda *args: seen.append(len(args)), seen


def closure_over_variable() -> Any:
    count = 0

    def more(*args: Any) -> None:
        nonlocal count
        count += 1

    return more, lambda: count


def closure_over_method() -> Any:
    seen: list[Any] = []
    append = seen.append
    return lambda *args: append(len(args)), (append, seen)


def default_argument() -> Any:
    seen: list[Any] = []

    def more(*args: Any, to: list[Any] = seen) -> None:
        to.append(len(args))

    return more, seen


def function_attribute() -> Any:
    def more(*args: Any) -> None:
        more.seen.append(1)  # type: ignore[attr-defined]

    more.seen = []  # type: ignore[attr-defined]
    return more, more.seen  # type: ignore[attr-defined]


def shared_by_two() -> Any:
    seen: list[Any] = []
    return seen.append, ([seen, seen], {"seen": seen}, (seen,))


def dict_view_and_list() -> Any:
    seen: dict[Any, Any] = {}
    return seen.setdefault, (seen.keys(), seen)


def dict_setitem() -> Any:
    seen: dict[Any, Any] = {}
    return functools.partial(seen.__setitem__, "key"), seen


def iterator_next() -> Any:
    items = iter([1, 2, 3, 4, 5])
    return functools.partial(next, items), items


def iterator_method() -> Any:
    items = iter([1, 2, 3, 4, 5])
    return lambda *args: items.__next__(), items


def counter_method() -> Any:
    count = itertools.count(5)
    return functools.partial(next, count), count


def local_class() -> Any:
    class Local:
        seen: list[Any] = []

        @classmethod
        def add(cls, *args: Any) -> None:
            cls.seen.append(1)

    return Local.add, Local.seen


def super_method() -> Any:
    class More(Note):
        def add(self, *args: Any) -> None:
            super().add(*args)

    note = More()
    return note.add, (note.log, note.count)


def ordered() -> Any:
    seen: collections.OrderedDict[Any, Any] = collections.OrderedDict()
    return seen.setdefault, seen


def weak_method() -> Any:
    note = Note()
    method = weakref.WeakMethod(note.add)
    return lambda *args: method()(*args), note  # type: ignore[misc]


def namespace() -> Any:
    space = types.SimpleNamespace(seen=[])
    return space.seen.append, space


CALLABLES = [
    list_append,
    list_append_to_items,
    dict_setdefault,
    dict_update_kwargs,
    set_add,
    deque_append,
    object_method,
    object_itself,
    object_of_classmethod,
    list_of_object,
    partial_of_append,
    partial_of_function,
    partial_by_name,
    partial_of_method,
    partial_of_partial,
    method_type,
    method_of_append,
    method_in_c,
    closure,
    closure_over_variable,
    closure_over_method,
    default_argument,
    function_attribute,
    shared_by_two,
    dict_view_and_list,
    dict_setitem,
    iterator_next,
    iterator_method,
    counter_method,
    local_class,
    super_method,
    ordered,
    weak_method,
    namespace,
]


# Who keeps the callable: given x, w (which wants gradients) and the callable. Gives a result and what has it called.


def tensor_hook(x: Any, w: Any, call: Any) -> Any:
    h = x * w
    h.register_hook(call)
    y = h.sin()
    return y, lambda: torch.autograd.grad(y.sum(), w)


def leaf_hook(x: Any, w: Any, call: Any) -> Any:
    v = w.detach().clone().requires_grad_()
    v.register_hook(call)
    y = (x * v).cos()
    return y, lambda: y.sum().backward()


def accumulate_hook(x: Any, w: Any, call: Any) -> Any:
    v = w.detach().clone().requires_grad_()
    v.register_post_accumulate_grad_hook(call)
    y = (x * v).cos()
    return y, lambda: y.sum().backward()


def node_hook(x: Any, w: Any, call: Any) -> Any:
    y = (x * w).sin()
    y.grad_fn.register_prehook(call)
    return y, lambda: torch.autograd.grad(y.sum(), w)


def removed_hook(x: Any, w: Any, call: Any) -> Any:
    h = x * w
    handle = h.register_hook(call)
    y = h.sin()

    def fire() -> None:
        torch.autograd.grad(y.sum(), w, retain_graph=True)
        handle.remove()
        torch.autograd.grad(y.sum(), w)

    return y, fire


def weak_callback(x: Any, w: Any, call: Any) -> Any:
    target = [Target()]
    ref = weakref.ref(target[0], call)

    def fire() -> None:
        assert ref() is not None
        target.clear()

    return x * 2, fire


def final_callback(x: Any, w: Any, call: Any) -> Any:
    target = [Target()]
    final = weakref.finalize(target[0], call, 1)

    def fire() -> None:
        target.clear()
        assert not final.alive

    return x * 2, fire


def thread_target(x: Any, w: Any, call: Any) -> Any:
    thread = threading.Thread(target=call, args=(1,))

    def fire() -> None:
        thread.start()
        thread.join()

    return x * 2, fire


def timer_target(x: Any, w: Any, call: Any) -> Any:
    timer = threading.Timer(0.0, call, [1])

    def fire() -> None:
        timer.start()
        timer.join()

    return x * 2, fire


def map_over(x: Any, w: Any, call: Any) -> Any:
    made = map(call, [1, 2])
    return x * 2, lambda: list(made)


def filter_over(x: Any, w: Any, call: Any) -> Any:
    made = filter(call, [1, 2])
    return x * 2, lambda: list(made)


def starmap_over(x: Any, w: Any, call: Any) -> Any:
    made = itertools.starmap(call, [(1,), (2,)])
    return x * 2, lambda: list(made)


def take_while(x: Any, w: Any, call: Any) -> Any:
    made = itertools.takewhile(call, [1, 2])
    return x * 2, lambda: list(made)


def iter_until(x: Any, w: Any, call: Any) -> Any:
    made = iter(functools.partial(call, 1), None)
    return x * 2, lambda: next(made, None)


def grouped(x: Any, w: Any, call: Any) -> Any:
    made = itertools.groupby([1, 2], call)
    return x * 2, lambda: [key for key, _ in made]


def context_variable(x: Any, w: Any, call: Any) -> Any:
    variable.set(call)
    return x * 2, lambda: variable.get()(1)


def context_run(x: Any, w: Any, call: Any) -> Any:
    context = contextvars.copy_context()
    context.run(variable.set, call)
    return x * 2, lambda: context[variable](1)


def signal_handler(x: Any, w: Any, call: Any) -> Any:
    signal.signal(signal.SIGUSR1, lambda number, frame: call(1))
    return x * 2, lambda: signal.raise_signal(signal.SIGUSR1)


def queued(x: Any, w: Any, call: Any) -> Any:
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
    waiting.put(call)
    return x * 2, lambda: waiting.get()(1)


def in_attribute(x: Any, w: Any, call: Any) -> Any:
    keeper.call = call
    return x * 2, lambda: keeper.call(1)


def in_tensor(x: Any, w: Any, call: Any) -> Any:
    y = x * 2
    y.call = call
    return y, lambda: y.call(1)


def in_mapping(x: Any, w: Any, call: Any) -> Any:
    weak[keeper] = call
    return x * 2, lambda: weak[keeper](1)


def excepthook(x: Any, w: Any, call: Any) -> Any:
    old = sys.unraisablehook
    sys.unraisablehook = call
    held = sys.unraisablehook
    sys.unraisablehook = old
    return x * 2, lambda: held(1)


def module_hook(x: Any, w: Any, call: Any) -> Any:
    module = torch.nn.Identity()
    handle = module.register_forward_hook(lambda m, args, out: call(1) and None)
    return x * 2, lambda: (module(x), handle.remove())


def old_module_hook(x: Any, w: Any, call: Any) -> Any:
    handle = linear.register_forward_pre_hook(functools.partial(hooked, call))
    return x * 2, lambda: (linear(x), handle.remove())


def hooked(call: Any, module: Any, args: Any) -> None:
    call(1)


def global_module_hook(x: Any, w: Any, call: Any) -> Any:
    handle = torch.nn.modules.module.register_module_forward_pre_hook(functools.partial(hooked, call))
    return x * 2, lambda: (linear(x), handle.remove())


def saved_hooks(x: Any, w: Any, call: Any) -> Any:
    pack = functools.partial(packed, call)
    with torch.autograd.graph.saved_tensors_hooks(pack, pack):
        y = (x * w).sin()
    return y, lambda: torch.autograd.grad(y.sum(), w)


def packed(call: Any, tensor: Any) -> Any:
    call(1)
    return tensor


def multi_hook(x: Any, w: Any, call: Any) -> Any:
    h = x * w
    torch.autograd.graph.register_multi_grad_hook((h,), call)
    y = h.sin()
    return y, lambda: torch.autograd.grad(y.sum(), w)


def future_callback(x: Any, w: Any, call: Any) -> Any:
    future: Any = torch.futures.Future()
    future.add_done_callback(call)
    return x * 2, lambda: future.set_result(1)


def future_then(x: Any, w: Any, call: Any) -> Any:
    future: Any = torch.futures.Future()
    then = future.then(call)
    return x * 2, lambda: (future.set_result(1), then.wait())


def in_deque(x: Any, w: Any, call: Any) -> Any:
    waiting[0] = call
    return x * 2, lambda: waiting[0](1)


def in_list_of_deque(x: Any, w: Any, call: Any) -> Any:
    waiting[0] = [call]
    held = waiting[0]
    return x * 2, lambda: held[0](1) or waiting[0][0](1)


def in_simple_namespace(x: Any, w: Any, call: Any) -> Any:
    space = types.SimpleNamespace(call=call)
    return x * 2, lambda: space.call(1)


def in_proxy(x: Any, w: Any, call: Any) -> Any:
    proxy = types.MappingProxyType({"call": call})
    return x * 2, lambda: proxy["call"](1)


def in_ordered(x: Any, w: Any, call: Any) -> Any:
    entries["call"] = call
    return x * 2, lambda: entries["call"](1)


def in_chain(x: Any, w: Any, call: Any) -> Any:
    chain = itertools.chain([call], [call])
    return x * 2, lambda: [each(1) for each in chain]


def in_cycle(x: Any, w: Any, call: Any) -> Any:
    both = itertools.tee([call], 2)
    return x * 2, lambda: [each(1) for one in both for each in one]


def in_method(x: Any, w: Any, call: Any) -> Any:
    return x * 2, types.MethodType(call, 1)


def cached(x: Any, w: Any, call: Any) -> Any:
    made = functools.cache(call)
    return x * 2, lambda: made(1)


def compared(x: Any, w: Any, call: Any) -> Any:
    key = functools.cmp_to_key(lambda a, b: call(1) or 0)
    return x * 2, lambda: sorted([1, 2], key=key)


def simple_partial(x: Any, w: Any, call: Any) -> Any:
    made = functools.partial(call)
    return x * 2, lambda: made(1)


def property_of(x: Any, w: Any, call: Any) -> Any:
    made = property(call)
    return x * 2, lambda: made.fget(1)


def static_of(x: Any, w: Any, call: Any) -> Any:
    made = staticmethod(call)
    return x * 2, lambda: made(1)


def default_factory(x: Any, w: Any, call: Any) -> Any:
    made: Any = collections.defaultdict(functools.partial(call, 1))
    return x * 2, lambda: made["key"]


variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable")
waiting: Any = collections.deque([None])
entries: Any = collections.OrderedDict()
linear = torch.nn.Identity()
keeper: Any = Note()
weak: Any = weakref.WeakKeyDictionary()

KEEPERS = [
    tensor_hook,
    leaf_hook,
    accumulate_hook,
    node_hook,
    removed_hook,
    weak_callback,
    final_callback,
    thread_target,
    timer_target,
    map_over,
    filter_over,
    starmap_over,
    take_while,
    iter_until,
    grouped,
    context_variable,
    context_run,
    signal_handler,
    queued,
    in_attribute,
    in_tensor,
    in_mapping,
    excepthook,
    module_hook,
    old_module_hook,
    global_module_hook,
    saved_hooks,
    multi_hook,
    future_callback,
    future_then,
    in_deque,
    in_list_of_deque,
    in_simple_namespace,
    in_proxy,
    in_ordered,
    in_chain,
    in_cycle,
    in_method,
    cached,
    compared,
    simple_partial,
    property_of,
    static_of,
    default_factory,
]


def outcomes(function: Callable[..., Any]) -> list[Any]:
    found = []
    for call in range(CALLS):
        generator = torch.Generator().manual_seed(call)
        x = torch.randn(4, generator=generator)
        w = torch.randn(4, generator=generator).requires_grad_()
        raised = None
        y, fire, reached = function(x, w)
        before = harness.describe(reached)
        try:
            fire()
        except Exception as error:
            raised = type(error).__name__, str(error)
        if isinstance(reached, types.FunctionType):
            reached = reached()
        found.append((y.detach().tolist(), raised, before, harness.describe(reached)))
    return found


def program_of(make: Callable[[], Any], keep: Callable[..., Any]) -> Callable[..., Any]:
    def program(x: torch.Tensor, w: torch.Tensor) -> Any:
        call, reached = make()
        y, fire = keep(x, w, call)
        return y, fire, reached

    return program


def compiled_by(backend: str, program: Callable[..., Any]) -> Callable[..., Any]:
    options = {"sync": True} if backend == "native" else None
    return kintsugi.compile(program, backend=backend, options=options)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("keep", KEEPERS)
def test_what_a_kept_callable_reaches(keep: Callable[..., Any], backend: str) -> None:
    wrong = []
    for make in CALLABLES:
        program = program_of(make, keep)
        expected = outcomes(program)
        if outcomes(compiled_by(backend, program)) != expected:
            wrong.append(make.__name__)
    assert not wrong
