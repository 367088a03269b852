"""Programs that torch.compile breaks: context manager."""

import contextlib

import torch

DYNAMO = {"gb0263": {"enable_trace_contextlib": False}, "gb0370": {"capture_profiler_record_function": True}}


def gb0262(x):
    with contextlib.closing(closes):
        return x + 1


@contextlib.contextmanager
def manager():
    yield 1


def gb0263(x):
    with manager():
        return x + 1


@contextlib.contextmanager
def no_generator():
    return iter([1])


def gb0221(x):
    with no_generator():
        return x + 1


def gb2533(x):
    return (manager(), x + 1)


def gb0370(x):
    return (torch.profiler.record_function("a"), x + 1)


def gb0209(x):
    return (torch.autograd._unsafe_preserve_version_counter(x), x + 1)


def gb0279(x):
    c = torch.fx.traceback.annotate({"a": 1})
    torch._dynamo.graph_break()
    with c:
        return x + 1


class Closes:
    def close(self):
        pass


closes = Closes()


def problem(x):
    with contextlib.closing(closes):
        return x + 1


def workaround_1(x):
    try:
        return x + 1
    finally:
        closes.close()
