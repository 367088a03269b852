"""tensor-of-unknown-origin: a sparse tensor has no memory that a trace could name, and is taken apart."""


def problem(x):
    (first, *rest) = (x * 1).to_sparse()
    return first.to_dense() + 1, len(rest)


def workaround_1(x):
    (first, *rest) = x * 1
    return first + 1, len(rest)
