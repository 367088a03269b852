"""Nothing in it is an operation on tensors."""

CONFIG = {"eager_when_faster": True}
BACKEND = "eager"
KINTSUGI_BACKEND = "native"


def problem(x):
    return "-".join(str(n) for n in (1, 2, 3))


def workaround_1(x):
    x + 1
    return "-".join(str(n) for n in (1, 2, 3))
