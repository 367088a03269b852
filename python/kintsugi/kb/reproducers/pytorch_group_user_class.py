"""Programs that torch.compile breaks: user class."""

import abc
import decimal

import pydantic.dataclasses
import torch


def gb4271(x):
    plain.__class__ = Other
    return x + 1


class CallableGetattr:
    def __call__(self, name):
        return 3


class Getattr2:
    __getattr__ = CallableGetattr()


getattr2 = Getattr2()


def gb0256(x):
    return x + getattr2.missing


class Base:
    def __init__(self):
        self.a = 1


class Child(Base):
    attr = property(lambda self: 1)

    def run(self, x):
        return x + super().missing

    def one(self, x):
        return x + super(Child).a

    def delete(self, x):
        super().__delattr__(torch)
        return x + 1

    def delete_name(self, x):
        super().__delattr__("a")
        return x + 1

    def attr_call(self, x):
        return super().number() + x

    def __init__(self):
        super().__init__()

    def init(self, x):
        super().__init__(3)
        return x


Base.number = decimal.Decimal("1")


class Calls:
    def __call__(self):
        return 2


Base.number = Calls()

child = Child()


def gb0113(x):
    return child.run(x)


def gb0006(x):
    return child.attr_call(x)


def gb7502(x):
    return (object.__new__(Abstract), x + 1)


class Abstract(abc.ABC):
    @abc.abstractmethod
    def f(self):
        pass


def gb2404(x):
    return (Abstract(), x + 1)


def gb0131(x):
    return free(x, 0, 1)


def __setattr__(self, k, v):
    return self


free = __setattr__


def gb3383(x):
    return (PData(a=1), x + 1)


@pydantic.dataclasses.dataclass
class PData:
    a: int


class Plain:
    pass


class Other(Plain):
    pass


plain = Plain()


def problem(x):
    plain.__class__ = Other
    return x + 1


def workaround_1(x):
    Other()
    return x + 1
