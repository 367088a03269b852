"""sort with non-constant keys."""

import torch


def problem(x):
    rows = sorted([x[0], x[1]], key=lambda row: row.sum())
    return rows[0]


def workaround_1(x):
    rows = x[:2]
    order = rows.sum(1).argsort()
    return torch.gather(rows, 0, order[:1, None].expand(1, 5))[0]


def dead_end_1(x):
    return min([x[0], x[1]], key=lambda row: row.sum())
