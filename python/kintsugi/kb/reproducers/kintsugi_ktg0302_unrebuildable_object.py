"""unrebuildable-object: an instance of a class whose __new__ decides can't be made again."""


class Numbered(Exception):
    def __new__(cls, number):
        made = super().__new__(cls, number)
        made.number = number
        return made


def problem(x):
    try:
        raise Numbered(2)
    except Numbered as error:
        print(error)
    return x + 2


def workaround_1(x):
    try:
        raise Numbered(2)
    except Numbered:
        print(2)
    return x + 2
