"""Backend compiler exception: the backend refuses a graph with an exception that Dynamo takes for a reason to break."""

import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException


def refusing(graph, example_inputs):
    raise DynamicOutputShapeException(torch.ops.aten.nonzero.default)


BACKEND = refusing


def problem(x):
    return x.relu() + 1
