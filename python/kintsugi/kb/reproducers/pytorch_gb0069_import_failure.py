"""Import failure."""


def problem(x):
    try:
        import not_a_module_at_all
    except ImportError:
        pass
    return x + 1


def workaround_1(x):
    return x + 1
