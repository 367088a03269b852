"""Programs that torch.compile breaks: rebuilt value."""


class Plain:
    pass


def gb0091(x):

    def f():
        return late

    f()
    late = x
    return late


def gb0092(x):
    return (iter(decimals), x + 1)


decimals = {1, 2}


def gb4501(x):
    return (id(Plain()), x + 1)


def problem(x):
    kept.append(iter({1, 2}))
    return x + 1


kept = []


def workaround_1(x):
    kept.append((1, 2))
    return x + 1
