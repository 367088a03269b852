"""torch.autograd.Function: `forward` is recorded, `backward` runs in eager mode, and nothing differs from eager."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch
from harness import Case, Suite, check, check_captured, signs, through_native
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import kintsugi

SUITE = Suite()
case, factory = SUITE.case, SUITE.factory


class Rounded(Function):
    @staticmethod
    def forward(ctx, x, scale=2):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x.round() * scale

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x * ctx.scale, None


@case(grad=True)
def twice(x):
    return Rounded.apply(x) + Rounded.apply(x.sin(), 3)


@case()
def without_gradients(x):
    return Rounded.apply(x, 3) + 1


@case(grad=True)
def in_no_grad(x):
    with torch.no_grad():
        return Rounded.apply(x, 3) + 1


@case(grad=True)
def in_a_loop(x):
    for i in range(4):
        x = Rounded.apply(x, i + 1).sin()
    return x


@case(grad=True)
def node(x):
    y = Rounded.apply(x * 2, 2.5)
    return y, type(y.grad_fn).__name__, y.requires_grad, y.is_leaf, y._version


@factory(grad=True)
def make_module():
    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.linear = torch.nn.Linear(4, 4)
            self.function = Rounded.apply

        def forward(self, x):
            return self.function(self.linear(x)).relu()

    return Module()


class Same(Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 5


@case(grad=True)
def its_argument(x):
    y = Same.apply(x)
    return y * 1, y is x, y._is_view()


@case(grad=True)
def its_argument_in_no_grad(x):
    with torch.no_grad():
        y = Same.apply(x)
    return y + 0, y is x, y.requires_grad


class Several(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.set_materialize_grads(False)
        product, positive = x * y, x > 0
        ctx.mark_non_differentiable(positive)
        ctx.save_for_backward(x, y, product)
        return product, positive, "text", None

    @staticmethod
    def backward(ctx, gradient, *others):
        x, y, _ = ctx.saved_tensors
        print(ctx.needs_input_grad, [other is None for other in others])
        return gradient * y * 2, gradient * x if ctx.needs_input_grad[1] else None


@case(grad=True)
def several_outputs(x):
    product, positive, text, nothing = Several.apply(x, x.detach() + 1)
    return product, positive, text, nothing, positive.requires_grad


class Power(Function):
    @staticmethod
    def forward(x, n):
        return x**n

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, n = inputs
        ctx.n = n
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx, gradient):
        x, _ = ctx.saved_tensors
        return gradient * ctx.n * x ** (ctx.n - 1), None


@case(grad=True)
def setup_context(x):
    return Power.apply(x, 3)


@case(grad=True)
def keywords(x):
    return Power.apply(x, n=3)


class WithDefaults(Function):
    """torch gives setup_context the defaults too."""

    @staticmethod
    def forward(x, n=2, *, scale=1.0):
        return x**n * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, n = inputs
        ctx.n = n
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * ctx.n * x ** (ctx.n - 1), None


class Defaults(WithDefaults):
    @staticmethod
    def forward(x, n=2):
        return x**n


@case(grad=True)
def defaults(x):
    return Defaults.apply(x) + Defaults.apply(x, 3) * Defaults.apply(x, n=4) - Defaults.apply(n=1, x=x)


@case(grad=True, traces=None, breaks=None)
def keywords_alone(x):
    try:
        return WithDefaults.apply(x, scale=3.0)
    except TypeError as error:
        return x, type(error).__name__


@case(grad=True)
def wrong_keywords(x):
    try:
        return Defaults.apply(x, m=3)
    except TypeError as error:
        return x, str(error)


@case(grad=True)
def gradient_of_a_gradient(x):
    (gradient,) = torch.autograd.grad(Power.apply(x, 3).sum(), x, create_graph=True)
    return gradient.sin()


gradient_of_a_gradient_case = SUITE.cases.pop()  # autograd.grad() is a step


class Telling(Function):
    @staticmethod
    def forward(ctx, x):
        print(torch.is_grad_enabled(), x.requires_grad, x.shape, ctx.needs_input_grad)
        return x.exp()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@case(grad=True)
def prints(x):
    return Telling.apply(x)


class OneOfTwo(Function):
    @staticmethod
    def forward(ctx, x):
        if x.sum() > 0:
            ctx.way = 1
            return x * 2
        ctx.way = 2
        return x * 3

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.way


@case(inputs=lambda call: tuple(x.requires_grad_() for x in signs(call)), grad=True, traces=2)
def decides(x):
    return OneOfTwo.apply(x)


class Raising(Function):
    @staticmethod
    def forward(ctx, x):
        if x.dim() == 2:
            raise ValueError("two dimensions")
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@case(grad=True)
def raises_and_is_caught(x):
    try:
        return Raising.apply(x)
    except ValueError as error:
        return str(error), x * 2


@case(grad=True, traces=None)
def raises(x):
    return Raising.apply(x)


raises_case = SUITE.cases.pop()  # nothing to hit


class OfNumbers(Function):
    @staticmethod
    def forward(ctx, x, y):
        return x * y

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@case(grad=True)
def too_few_gradients(x):
    return OfNumbers.apply(x, 2)


class NoTensor(Function):
    @staticmethod
    def forward(ctx, x):
        return 3

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@case(grad=True)
def no_tensor(x):
    return NoTensor.apply(x), x * 1


class Transposed(Function):
    @staticmethod
    def forward(ctx, x):
        return x.t()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.t() * 7


@case(grad=True)
def a_view(x):
    y = Transposed.apply(x * 1)
    return y, y._is_view(), y.is_contiguous()


class Saving(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        (y,) = ctx.saved_tensors
        return gradient * y


@case(grad=True)
def written_after_it_was_saved(x):
    y = Saving.apply(x)
    z = y * 1
    y.add_(1)
    return z


class Outer(Function):
    @staticmethod
    def forward(ctx, x):
        return Rounded.apply(x) + 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 9


@case(grad=True)
def one_in_another(x):
    return Outer.apply(x)


class Masked(Function):
    @staticmethod
    def forward(ctx, x):
        mask = torch.rand_like(x) > 0.5
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, gradient):
        (mask,) = ctx.saved_tensors
        return gradient * mask


@case(grad=True)
def draws(x):
    return Masked.apply(x)


class Autocast(Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x @ x.t()

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * gradient @ x


@case(grad=True)
def with_autocast(x):
    with torch.autocast("cpu", torch.bfloat16):
        return Autocast.apply(x)


class Attributes(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.tripled = x.detach() * 3
        ctx.shape = x.shape
        ctx.sizes = {"rows": x.size(0)}
        return x.sum(0)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.expand(ctx.shape) * ctx.tripled * ctx.sizes["rows"]


@case(grad=True)
def attributes(x):
    return Attributes.apply(x)


class WithApply(Rounded):
    @classmethod
    def apply(cls, x):
        return super().apply(x) + 1


@case(grad=True)
def an_apply_of_its_own(x):
    return WithApply.apply(x)


@factory(grad=True)
def make_counting():
    class Counting(Function):
        count = 0

        @staticmethod
        def forward(ctx, x):
            Counting.count += 1
            ctx.count = Counting.count
            return x * Counting.count

        @staticmethod
        def backward(ctx, gradient):
            return gradient * ctx.count

    def program(x):
        return Counting.apply(x), Counting.count

    return program


Pair = collections.namedtuple("Pair", "first second")


class OfAPair(Function):
    @staticmethod
    def forward(ctx, x):
        return Pair(x * 1, x * 2)

    @staticmethod
    def backward(ctx, first, second):
        return first + second


@case(grad=True, traces=None, breaks=None)
def a_named_tuple(x):
    result = OfAPair.apply(x)
    with torch.no_grad():
        return result, type(result).__name__, type(OfAPair.apply(x)).__name__


class Repeated(Function):
    @staticmethod
    def forward(ctx, x):
        y = x * 2
        return y, y, x

    @staticmethod
    def backward(ctx, first, second, third):
        return first * 3 + second * 5 + third * 7


@case(grad=True)
def one_tensor_twice(x):
    first, second, third = Repeated.apply(x)
    return first * 1, second * 1, third * 1, first is second, third is x


@factory(grad=True)
def make_stashing():
    class Stashing(Function):
        last = None

        @staticmethod
        def forward(ctx, x):
            y = x * 2
            Stashing.last = y
            return y

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 3

    def program(x):
        y = Stashing.apply(x)
        kept = Stashing.last
        return y, kept is y, kept.requires_grad, (kept * 2).requires_grad, kept.is_leaf

    return program


class Integers(Function):
    @staticmethod
    def forward(ctx, x):
        return x.argmax(1), x.to(torch.int32)

    @staticmethod
    def backward(ctx, first, second):
        return None


@case(grad=True)
def integers(x):
    return Integers.apply(x), x * 1


class Writing(Function):
    @staticmethod
    def forward(ctx, x):
        x.add_(1)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@case(grad=True)
def a_write_that_is_not_marked(x):
    y = x * 1
    return Writing.apply(y), y


# --- steps: the context is seen elsewhere, or torch changes an argument ---


class Doubled(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


@case(grad=True, breaks=1)
def writes_to_its_argument(x):
    y = x * 1
    z = Doubled.apply(y)
    return z, z is y, z.requires_grad


class Kept(Function):
    contexts: list[Any] = []

    @staticmethod
    def forward(ctx, x):
        Kept.contexts.append(ctx)
        ctx.number = 1
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


@case(grad=True, traces=None, breaks=None)
def keeps_its_context(x):
    y = Kept.apply(x)
    context = Kept.contexts.pop()
    return y, context.number, type(context).__name__


class Helped(Function):
    @staticmethod
    def save(ctx, x):
        ctx.save_for_backward(x)

    @staticmethod
    def forward(ctx, x):
        Helped.save(ctx, x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x


@case(grad=True, breaks=1)
def gives_its_context_away(x):
    return Helped.apply(x)


class Closed(Function):
    @staticmethod
    def forward(ctx, x):
        def save():
            ctx.save_for_backward(x)

        save()
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0]


@case(grad=True, breaks=1)
def closes_over_its_context(x):
    return Closed.apply(x)


class Asking(Function):
    @staticmethod
    def forward(ctx, x):
        return x * (1 if hasattr(ctx, "saved_tensors") else 2) * (3 if "ctx" in locals() else 4)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@case(grad=True, breaks=1)
def asks_for_its_variables(x):
    return Asking.apply(x)


@case(grad=True)
def in_a_hook(x):
    y = x * 2
    y.register_hook(lambda gradient: gradient * 3)
    return Rounded.apply(y)


@factory(grad=True)
def make_hook_of_a_parameter():
    weight = torch.nn.Parameter(torch.ones(4))
    calls: list[int] = []

    def program(x):
        handle = weight.register_hook(lambda gradient: calls.append(1))
        kept = weight.register_post_accumulate_grad_hook(lambda parameter: calls.append(2))
        seen = list(calls), len(weight._backward_hooks)
        handle.remove()
        kept.remove()
        return (x * weight).sum(), seen

    return program, calls


@SUITE.parametrize()
def test_equals_eager(case: Case) -> None:
    check(case)


@SUITE.parametrize()
def test_captured(case: Case) -> None:
    check_captured(case)


@SUITE.parametrize()
def test_natively(case: Case) -> None:
    check(
        case, lambda program: kintsugi.compile(program, backend="native", options={"sync": True}), close=True
    )


@pytest.mark.parametrize("case", [gradient_of_a_gradient_case, raises_case], ids=lambda case: case.name)
def test_in_part(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("changed", ["forward", "backward", "setup_context"])
def test_methods_that_are_replaced(changed: str) -> None:
    def make() -> tuple[Any, Any]:
        class Scaled(Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, gradient):
                return gradient * 2

        def replace() -> None:
            if changed == "forward":
                Scaled.forward = staticmethod(lambda ctx, x: x * 10)
            elif changed == "backward":
                Scaled.backward = staticmethod(lambda ctx, gradient: gradient * 11)
            else:
                Scaled.forward = staticmethod(lambda x: x * 12)
                Scaled.setup_context = staticmethod(lambda ctx, inputs, output: None)

        return lambda x: Scaled.apply(x) + 1, replace

    found = []
    for compiled in (False, True):
        program, replace = make()
        called = kintsugi.compile(program, backend="eager") if compiled else program
        values = []
        for turn in range(6):
            if turn == 3:
                replace()
            x = torch.arange(4.0, requires_grad=True)
            called(x).sum().backward()
            values.append((called(x.detach()).tolist(), x.grad.tolist()))
        found.append(values)
    assert found[0] == found[1] and found[0][2] != found[0][3]


@pytest.mark.parametrize("training", [True, False])
def test_whole(training: bool) -> None:
    compiled = kintsugi.compile(
        lambda x: Rounded.apply(x * 2) + 1, fullgraph=True, backend="native", options={"sync": True}
    )
    for _ in range(4):
        compiled(torch.randn(3, 4, requires_grad=training))
    stats = compiled.stats()
    assert stats.graph_break_count == 0 and stats.hits == 3
    assert through_native or stats.native_runs > 0


def test_nodes_are_freed_with_the_trace() -> None:
    import gc
    import weakref

    class Local(Rounded):
        pass

    compiled = kintsugi.compile(lambda x: Local.apply(x), backend="eager")
    for _ in range(3):
        compiled(torch.randn(2, requires_grad=True)).sum().backward()
    gone = weakref.ref(Local)
    compiled = Local = None  # type: ignore[assignment,misc]
    kintsugi.reset()
    gc.collect()
    assert gone() is None
