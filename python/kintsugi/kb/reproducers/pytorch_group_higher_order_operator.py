"""Programs that torch.compile breaks: higher order operator."""

import functools

import torch
from torch._higher_order_ops.executorch_call_delegate import executorch_call_delegate
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.map import map_impl
from torch._higher_order_ops.out_dtype import out_dtype
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.strict_mode import strict_mode
from torch._ops import HigherOrderOperator

DYNAMO = {"gb4413": {"inline_inbuilt_nn_modules": False}}

H = torch.ops.higher_order

SEEN = []


def gb0041(x):
    return torch.cond(x.sum() > 0, lambda x: x.add_(1), lambda x: x - 1, (x,))


def gb0309(x):
    return H.cond(x.sum() > 0, torch.sin, torch.cos)


def gb0310(x):
    return H.cond([x], torch.sin, torch.cos, (x,))


def gb0311(x):
    return H.cond(x.sum() > 0, torch.sin, torch.cos, {"a": x})


def gb0312(x):
    return H.cond(x.sum() > 0, lambda x, f: x + 1, lambda x, f: x - 1, (x, len))


def gb0313(x):
    return torch.cond(x.sum() > 0, lambda x: (x + 1,), lambda x: (x - 1, x + 2), (x,))


def gb0040(x):
    return torch.cond(x.sum() > 0, lambda x: x, lambda x: x - 1, (x,))


def gb0067(x):

    def yes(x):
        SEEN.append(x)
        return x + 1

    return torch.cond(x.sum() > 0, yes, lambda x: x - 1, (x,))


def gb0302(x):
    return H.while_loop(3, lambda x: (x + 1,), (x,), ())


def gb0303(x):
    return H.while_loop(lambda x: x.sum() < 9, lambda x: (x + 1,), (x,), (), k=1)


def gb0304(x):
    return H.while_loop(lambda x: x.sum() < 9, lambda x: (x + 1,), (x,), {"a": x})


def gb0308(x):
    return H.while_loop(lambda x: x > 0, lambda x: (x + 1,), (x,), ())


def gb0339(x):

    def body(x):
        if not torch.compiler.is_compiling():
            raise RuntimeError("this loop never ends")
        return (x + 1,)

    return H.while_loop(lambda x: True, body, (x,), ())


def add(a, b):
    return a + b


def gb0301(x):
    return H.associative_scan(lambda a, b: (a + b,), (x, 1), ())


def gb0341(x):
    return H.associative_scan(functools.partial(add), (x,), ())


def gb0315(x):
    return H.associative_scan(add, x, ())


def gb0316(x):
    return H.associative_scan(add, (x,), x)


def gb0317(x):
    return H.associative_scan(add, (x[:0],), ())


def gb0318(x):
    return H.associative_scan(lambda a, b: (), (x,), ())


def gb0319(x):
    return H.associative_scan(lambda a, b: [a + b], (x,), ())


def step(a, b):
    return [a + b, a * b]


def flat(*args, combine_fn):
    return combine_fn(*args)


flat_step = functools.partial(flat, combine_fn=step)


def gb0342(x):
    return H.scan(len, [x[0]], [x], [])


def gb0320(x):
    return H.scan(flat_step, [x[0]], x, [])


def gb0321(x):
    return H.scan(flat_step, x[0], [x], [])


def gb0322(x):
    return H.scan(flat_step, [], [x], [])


def gb0323(x):
    return H.scan(flat_step, [x[0]], [x], x)


def gb0324(x):
    return H.scan(flat_step, [x[0]], [x[:0]], [])


def gb0343(x):
    return scan(lambda a, b: (a + b, a * b, a - b), x[0], x)


def gb0314(x):
    return map_impl(lambda a: (a + 1, "s"), [x], [])


def gb0325(x):
    return map_impl(torch.sin, [x], [], k=1)


def gb0326(x):
    return map_impl(lambda a: (a + 1,), [x[:0]], [])


def gb0327(x):
    return executorch_call_delegate(x, k=1)


def gb6017(x):
    return executorch_call_delegate(x, x)


def gb0330(x):
    return H.wrap_with_set_grad_enabled(True, torch.sin, x, k=1)


def gb0331(x):
    return H.wrap_with_set_grad_enabled(x.sum() > 0, lambda x: x + 1, x)


def gb0332(x):
    y = x + 1
    return H.wrap_with_set_grad_enabled(True, lambda x: x + y, x)


def gb0333(x):
    return H.wrap_with_autocast("cpu", None, True, None, torch.sin, x, k=1)


def gb0344(x):
    return H.wrap_with_autocast("cpu", None, x.sum() > 0, None, lambda x: x + 1, x)


def gb0334(x):
    y = x + 1
    return H.wrap_with_autocast("cpu", None, True, None, lambda x: x + y, x)


def gb0335(x):
    return hints_wrapper(lambda x: x + 1, (x,), {})


def gb0336(x):
    return out_dtype(torch.ops.aten.mm.default, torch.int32, x, x, k=1)


def gb0345(x):
    return strict_mode(lambda x: x[0] + 1, ([x],))


def gb0356(x):
    return H.flex_attention_backward(x, len)


sine = torch.compiler.nested_compile_region(functools.partial(torch.add, alpha=2))


def gb0042(x):
    return sine(x, x)


def gb0017(x):
    return H.invoke_subgraph(torch.sin, "name", x)


class Odd(HigherOrderOperator):
    def __init__(self):
        super().__init__("kintsugi_kb_odd")

    def __call__(self, x):
        return super().__call__(x)


odd = Odd()


def gb0306(x):
    return odd(x)


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 0
        self.l = torch.nn.Linear(5, 5)

    def forward(self, x):
        self.n += 1
        return x + 1


counter = Counter()


def gb4413(x):
    return torch.cond(x.sum() > 0, lambda x: counter(x), lambda x: x - 1, (x,))


def problem(x):
    return torch.ops.higher_order.cond([x], torch.sin, torch.cos, (x,))


def workaround_1(x):
    return torch.cond(x.sum() == x.sum(), torch.sin, torch.cos, (x,))
