"""unrebuildable-object: a traceback belongs to the frames of one call and can't be made again."""


def problem(x):
    depth = 0
    try:
        raise ValueError("bad")
    except ValueError as error:
        rest = error.__traceback__
        while rest is not None:
            depth, rest = depth + 1, rest.tb_next
    return x + depth


def workaround_1(x):
    depth = 0
    try:
        raise ValueError("bad")
    except ValueError:
        depth += 1
    return x + depth
