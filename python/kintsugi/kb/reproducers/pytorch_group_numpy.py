"""Programs that torch.compile breaks: numpy."""

import numpy as np
import torch

DYNAMO = {
    "problem": {"trace_numpy": False},
    "gb0105": {"trace_numpy": False},
    "gb0231": {"trace_numpy": False},
    "gb0293": {"trace_numpy": False},
    "gb0298": {"use_numpy_random_stream": True},
}


def gb0157(x):
    return (x.numpy().base, x + 1)


def gb0105(x):
    return torch.sin(x).numpy()


def gb0231(x):
    return torch.from_numpy(array) + x


array = np.ones((4, 5), np.float32)

strings = np.array(["a", "b"], dtype=object)


def gb0293(x):
    return x + float(np.sum(array))


def gb0298(x):
    return x + float(np.random.uniform())


def gb0300(x):
    return (np.finfo(x.numpy()), x + 1)


def gb0290(x):
    return (np.sum.__call__(array), x + 1)


def gb0159(x):
    return (x.numpy().__version__, x + 1)


def gb0185(x):
    return (strings, x + 1)


def problem(x):
    return torch.sin(x).numpy()


def workaround_1(x):
    return torch.sin(x).numpy()
