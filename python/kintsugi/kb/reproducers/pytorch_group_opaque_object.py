"""Programs that torch.compile breaks: opaque object."""

import torch
from torch._library.opaque_object import MemberType, register_opaque_type
from torch._opaque_base import OpaqueBase


class Ref(OpaqueBase):
    def __init__(self):
        self.n = 3

    def real(self):
        return other

    def known(self):
        return 3

    def hidden(self):
        return 4


class RefAttr(OpaqueBase):
    def __init__(self):
        self.n = 3

    def __getattr__(self, name):
        raise AttributeError(name)

    def known(self):
        return 3


register_opaque_type(
    Ref, typ="reference", members={"known": MemberType.USE_REAL, "real": MemberType.USE_REAL}
)

register_opaque_type(RefAttr, typ="reference", members={"known": MemberType.USE_REAL})

ref = Ref()

other = Ref()

refattr = RefAttr()


def gb8656(x):
    return x + refattr.known()


def gb8843(x):
    return (ref.real(), x + 1)


def gb2078(x):
    return x + ref.hidden()


def gb7685(x):
    return (Ref.nothing, x + 1)


class D:
    def __get__(self, o, t):
        return 3


class RefD(OpaqueBase):
    d = D()


register_opaque_type(RefD, typ="reference")


def gb9567(x):
    return (RefD.d, x + 1)


def gb7650(x):
    g = generator
    return x + g.get_state().float().sum()


generator = torch.Generator()


def problem(x):
    return x + ref.n


def workaround_1(x):
    return x + ref.known()
