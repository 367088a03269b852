"""unsupported-bytecode: except* needs instructions that the recorder has no rules for."""


def problem(x):
    try:
        raise ExceptionGroup("two", [ValueError("a"), TypeError("b")])
    except* ValueError:
        x = x + 1
    except* TypeError:
        x = x * 2
    return x


def workaround_1(x):
    for error in (ValueError("a"), TypeError("b")):
        try:
            raise error
        except ValueError:
            x = x + 1
        except TypeError:
            x = x * 2
    return x
