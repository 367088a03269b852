"""opaque-c-call: A C function is called whose effects Kintsugi does not know."""

import zlib


def problem(x):
    y = x + 1
    check = zlib.crc32(bytes(y.shape))
    return y * (check % 7)


CHECK = zlib.crc32(bytes((4, 5))) % 7


def workaround_1(x):
    return (x + 1) * CHECK
