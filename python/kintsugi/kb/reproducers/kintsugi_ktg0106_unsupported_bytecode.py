"""unsupported-bytecode: a pattern that asks a property needs an instruction that the recorder has no rule for here."""


class Layer:
    def __init__(self, width):
        self._width = width

    @property
    def width(self):
        return self._width


LAYER = Layer(2)


def problem(x):
    match LAYER:
        case Layer(width=width):
            return x * width
    return x


def workaround_1(x):
    return x * LAYER.width
