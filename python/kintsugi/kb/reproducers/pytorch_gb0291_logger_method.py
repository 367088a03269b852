"""logging.Logger method not supported for non-export cases."""

import logging

import torch

logger = logging.getLogger("quiet")


def problem(x):
    logger.debug("shape %s", x.shape)
    return x + 1


def workaround_1(x):
    if not torch.compiler.is_compiling():
        logger.debug("shape %s", x.shape)
    return x + 1


def dead_end_1(x):
    logger.log(logging.DEBUG, "shape")
    return x + 1
