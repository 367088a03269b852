"""Programs that torch.compile breaks: type slot."""

import array

import torch


def gb9458(x):
    return (b_array * 2, x + 1)


b_array = array.array("i", [1, 2])


def gb9561(x):
    global b_array
    a = b_array
    a *= 1
    return (a, x + 1)


def gb4411(x):
    return (1 in b_array, x + 1)


def gb7786(x):
    b_array[0] = 1
    return x + 1


def gb6012(x):
    return (len(b_array), x + 1)


by = bytearray(b"ab")


def gb3934(x):
    return (b"a" + by, x + 1)


lib = torch.library.Library("kintsugi_kb2", "DEF")

lib.define("odd(Tensor x) -> Tensor")

lib.impl("odd", lambda x: x + 1, "CompositeImplicitAutograd")

lib.define("meta(Tensor x) -> Tensor")

lib.impl("meta", lambda x: x + 1, "CPU")

numbers = array.array("i", [1, 2])


def problem(x):
    return x + len(numbers * 2)


listed = [1, 2]


def workaround_1(x):
    return x + len(listed * 2)
