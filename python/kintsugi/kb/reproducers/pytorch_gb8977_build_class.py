"""Invalid call to __build_class__."""


def problem(x):
    class Box:
        def __init__(self, value):
            self.value = value

    return Box(x + 1).value


class Box:
    def __init__(self, value):
        self.value = value


def workaround_1(x):
    return Box(x + 1).value


def dead_end_1(x):
    class Small:
        scale = 1

    return x + Small.scale
