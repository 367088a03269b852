"""Data-dependent assertion failed (cannot compile partial graph): an assert that fails, under a context manager."""


class Forgiving:
    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        return kind is AssertionError


def problem(x):
    with Forgiving():
        assert x.dim() == 3, "three dimensions are expected"
        x = x * 2
    return x + 1


def workaround_1(x):
    if x.dim() == 3:
        x = x * 2
    return x + 1
