"""Programs that torch.compile breaks: gradient inside."""

import torch

DYNAMO = {
    "gb9186": {"trace_autograd_ops": False},
    "gb4927": {"trace_autograd_ops": True},
    "gb0372": {"trace_autograd_ops": True},
    "gb1381": {"trace_autograd_ops": True},
    "gb6663": {"trace_autograd_ops": True},
    "gb1724": {"trace_autograd_ops": True},
    "gb5748": {"trace_autograd_ops": True},
    "gb7054": {"trace_autograd_ops": True},
    "gb0442": {"trace_autograd_ops": True},
    "gb1042": {"trace_autograd_ops": True},
}

leaf = torch.ones(4, 5, requires_grad=True)


def gb9186(x):
    y = (leaf * x).sum()
    (g,) = torch.autograd.grad(y, leaf)
    return g + 1


def gb4927(x):
    y = (leaf * x).sum()
    (g,) = torch.autograd.grad(y, leaf)
    return (g, y)


outside = (leaf * 2).sum()


def gb0372(x):
    (g,) = torch.autograd.grad(outside, leaf, retain_graph=True)
    return g + x


def gb1381(x):
    y = (leaf * leaf * x).sum()
    (g,) = torch.autograd.grad(y, leaf)
    (h,) = torch.autograd.grad(y, leaf)
    return g + h


def gb6663(x):
    return torch.autograd.grad(3, leaf)


def gb1724(x):
    y = (leaf * x).sum()
    return torch.autograd.grad(y, {x: leaf})


edge = torch.autograd.graph.get_gradient_edge(outside)


def gb5748(x):
    y = (leaf * x).sum()
    return torch.autograd.grad(y, edge)


def gb7054(x):
    y = leaf * 2
    (y * x).sum().backward(inputs=[y])
    return y.detach()


def gb0442(x):
    (leaf * x).sum().backward(inputs=[])
    return x + 1


def gb0165(x):
    return (torch.autograd.Variable._execution_engine.is_checkpoint_valid(), x + 1)


def gb0166(x):
    torch.autograd.Variable._execution_engine.queue_callback(lambda: None)
    return x + 1


_, outer_vjp = torch.func.vjp(torch.sin, torch.ones(4, 5))


def gb7299(x):
    return outer_vjp(x)


def gb1042(x):
    w = x.clone().requires_grad_()
    (w * x).sum().backward(inputs=[w])
    return x


def problem(x):
    (gradient,) = torch.autograd.grad((leaf * x).sum(), leaf)
    return gradient + 1
