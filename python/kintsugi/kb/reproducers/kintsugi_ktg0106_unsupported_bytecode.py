"""unsupported-bytecode: a global that the function deletes needs an instruction that the recorder has no rule for."""


def problem(x):
    global scratch
    scratch = x + 1
    y = scratch * 2
    del scratch
    return y


def workaround_1(x):
    scratch = x + 1
    return scratch * 2
