"""Programs that torch.compile breaks: parameter constructor."""

import torch

DYNAMO = {
    "problem": {"graph_break_on_nn_param_ctor": False},
    "gb0226": {"graph_break_on_nn_param_ctor": False},
    "gb0235": {"graph_break_on_nn_param_ctor": False, "capture_dynamic_output_shape_ops": True},
    "gb0237": {"graph_break_on_nn_param_ctor": False},
    "gb0227": {"graph_break_on_nn_param_ctor": False},
    "gb0228": {"graph_break_on_nn_param_ctor": False},
}


def gb0226(x):
    return (torch.nn.Parameter(3), x + 1)


def gb0237(x):
    return torch.nn.Parameter(x, requires_grad=x.sum() > 0) + 1


def gb0235(x):
    return torch.nn.Parameter(x[x > 0]) + 1


class TSub(torch.Tensor):
    @classmethod
    def __torch_function__(cls, f, t, a=(), k=None):
        return super().__torch_function__(f, t, a, k or {})


tsub = torch.ones(4, 5).as_subclass(TSub)


def gb0227(x):
    return torch.nn.Parameter(tsub * x)


class PM(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.p = torch.nn.Parameter(torch.ones(1))


def gb0228(x):
    return PM().p + x


def problem(x):
    return torch.nn.Parameter(tsub * x)


def workaround_1(x):
    return tsub * x
