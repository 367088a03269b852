"""Programs that torch.compile breaks: exception and bytecode."""

DYNAMO = {"gb0200": {"inject_BUILD_SET_unimplemented_TESTING_ONLY": True}}


def gb9625(x):
    try:
        raise ValueError
    except ValueError as e:
        return (e.__traceback__.tb_lasti, x + 1)


def gb0050(x):
    try:
        raise ValueError
    except 3:
        return x
    return x


def gb0051(x):
    try:
        raise ValueError
    except (3, 4):
        return x


def gb0273(x):
    return (ValueError(a=1), x + 1)


def gb0171(x):
    assert x.shape[0] == 3, x.shape
    return x + 1


def gb0200(x):
    return ({1, 2}, x + 1)


class Aw:
    def __await__(self):
        yield 1
        return 2


async def waits(x):
    return x + await Aw()


def gb0082(x):
    c = waits(x)
    c.send(None)
    try:
        c.send(None)
    except StopIteration as s:
        return s.value


def problem(x):
    try:
        raise ValueError(1)
    except ValueError as error:
        return x + (error.__traceback__.tb_lasti >= 0)


def workaround_1(x):
    try:
        raise ValueError(1)
    except ValueError as error:
        return x + error.args[0]
