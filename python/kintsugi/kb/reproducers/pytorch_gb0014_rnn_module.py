"""Attempted to wrap RNN, GRU, or LSTM."""

import torch

rnn = torch.nn.LSTM(5, 3)


def problem(x):
    return rnn(x)[0]


def workaround_1(x):
    return problem(x)
