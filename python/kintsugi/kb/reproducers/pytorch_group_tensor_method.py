"""Programs that torch.compile breaks: tensor method."""

import torch

DYNAMO = {"gb0045": {"fake_tensor_disable_inference_mode": True}}


def gb0128(x):
    y = torch.empty(0)
    y.set_(x.untyped_storage(), 0, (2,), (1,))
    return y + 1


def gb0125(x):
    x.requires_grad_()
    return x + 1


def gb8985(x):
    y = x + 1
    y.requires_grad_()
    return y


def gb0130(x):
    y = x + 1
    return y.sparse_resize_and_clear_((4,), 1, 0)


def gb0045(x):
    return x + 1 if x.is_inference() else x - 1


def gb0001(x):
    return (x + 1).as_subclass(torch.nn.Parameter)


held = torch.ones(3, 4)


def gb0240(x):
    a, b = (torch.empty(1), torch.empty(1))
    torch.aminmax(x, dim=0, out=(a, b))
    return a + b


def gb0241(x):
    a, b = (torch.empty(5, 4).t(), torch.empty(5, 4).t())
    torch.frexp(x, out=(a, b.int()))
    return a


def gb0220(x):
    held.data = held.float() if held.dtype == torch.float64 else held.double()
    return x + 1


def gb0233(x):
    return torch.nested.nested_tensor([x, x], layout=torch.strided)


def gb0245(x):
    return torch.nested.nested_tensor(x, layout=torch.jagged)


def gb5173(x):
    return x + torch.ones(4, 5, device="meta")


def gb0129(x):
    return (torch.ones(3, 4).sparse_resize_((4, 4), 1, 1), x + 1)


def gb0072(x):
    return (torch.squeeze_copy(x), torch.Tensor.t_(x))


def gb0374(x):
    return (torch.sparse_compressed_tensor([0, 1], [0], [1.0], (1, 1)), x)


half = torch.ones(4, 5, requires_grad=True)


def gb0181(x):
    return half + x


half.grad_dtype = None

half.grad = torch.ones(4, 5, dtype=torch.float64)

lib = torch.library.Library("kintsugi_kb2", "DEF")

lib.define("odd(Tensor x) -> Tensor")

lib.impl("odd", lambda x: x + 1, "CompositeImplicitAutograd")

lib.define("meta(Tensor x) -> Tensor")

lib.impl("meta", lambda x: x + 1, "CPU")


def problem(x):
    y = torch.empty(0)
    y.set_(x.untyped_storage(), 0, (2,), (1,))
    return y + 1


def workaround_1(x):
    return x.flatten()[:2] + 1
