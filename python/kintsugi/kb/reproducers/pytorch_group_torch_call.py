"""Programs that torch.compile breaks: torch call."""

import torch
import torch.fx.experimental.symbolic_shapes as symbolic

DYNAMO = {"gb0043": {"only_allow_pt2_compliant_ops": True}, "gb0002": {"assume_static_by_default": False}}


def gb0046(x):
    return x + 1 if torch.is_inference_mode_enabled() else x - 1


def gb0360(x):
    return symbolic.guard_scalar([x]) + x


def gb0248(x):
    return (torch.get_device_module("cpu", 1), x + 1)


def gb0286(x):
    return (torch.get_device_module("no such device"), x + 1)


def gb0285(x):
    return (torch.accelerator.current_stream("cpu", 1), x + 1)


def gb0249(x):
    return (torch.accelerator.current_stream("cpu"), x + 1)


def gb0223(x):
    return (torch.compile(torch.sin, fullgraph=True, backend="eager")(x), torch.compile(torch.sin, "x")(x))


def gb9840(x):
    torch._check(x.shape[0] > 0, message)
    return x + 1


def gb9158(x):
    y = x + 1
    torch._check(x.shape[0] > 0, lambda: f"{y}")
    return y


def gb5195(x):
    return torch._prims_common.elementwise_dtypes(
        x, object(), type_promotion_kind=torch._prims_common.ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
    )[0]


def gb0359(x):
    return torch.backends.cuda.SDPAParams(x, x, x, None, 0.0, False, False).nothing


def gb0234(x):
    torch._C._pop_torch_function_stack()
    return x + 1


def gb0049(x):
    return torch.ops.aten.add(x, "s", "t")


def gb0243(x):
    return (torch.nn.modules.utils._pair(object()), x + 1)


def gb0208(x):
    return (torch.get_default_dtype(), torch.result_type(x, x), torch.Tensor.__repr__(x), x)


lib = torch.library.Library("kintsugi_kb2", "DEF")

lib.define("odd(Tensor x) -> Tensor")

lib.impl("odd", lambda x: x + 1, "CompositeImplicitAutograd")

lib.define("meta(Tensor x) -> Tensor")

lib.impl("meta", lambda x: x + 1, "CPU")


def gb0043(x):
    return torch.ops.kintsugi_kb2.odd(x)


qt = torch.quantize_per_tensor(torch.ones(4, 5), 0.1, 0, torch.quint8)


def gb0064(x):
    return qt.dequantize() + x


def gb0002(x):
    assert x.shape[0] * 0
    return x


def gb6735(x):
    return (torch.library.wrap_triton(1, 2), x)


def message():
    return "positive"


def problem(x):
    torch._check(x.shape[0] > 0, message)
    return x + 1


def workaround_1(x):
    torch._check(x.shape[0] > 0, lambda: "positive")
    return x + 1
