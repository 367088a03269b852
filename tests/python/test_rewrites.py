"""Rewrites are tried before they are shown: on drawn inputs, on both sides of a branch, with gradients."""

from __future__ import annotations

import pytest
import torch

import kintsugi


def verdicts(fn, *args):
    return {s.rule.split()[0]: s for s in kintsugi.suggest_rewrites(fn)(*args)}


def log_or_zero(x):
    if x.sum() > 0:
        return torch.log(x)
    else:
        return x * 0


def root(x):
    if x.max() > 0:
        y = x.sqrt()
    else:
        y = x - 1
    return y


def plain(x):
    if x.sum() > 0:
        return x * 2
    else:
        return x - 1


def never(x):
    if x.shape[0] > 100:
        return x * 2
    else:
        return x - 1


def quotient(x, y):
    return x / y.sum().item()


def share(x, counts):
    total = counts.sum().item()
    return x / total


def halves(x):
    n = 0
    while x.abs().max() > 1:
        x = x / 2
        n = n + 1
    y = x + n
    y.mul_(2)
    return y


def slopes(x, scale):
    return x * scale.max().item()


def sign(x):
    return x * x.gt(0).any().item()


def negative_zero(x):
    if x.sum() > 0:
        return x
    else:
        return x + 0


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(3, 3)
        self.norm = torch.nn.BatchNorm1d(3)

    def forward(self, x):
        x = self.norm(x)
        if x.sum() > 0:
            return self.line(x)
        else:
            return self.line(x) - 1


@pytest.mark.parametrize("x", [torch.tensor([0.5, 2.0]), torch.tensor([0.5, 2.0], requires_grad=True)])
def test_where_around_a_log_has_a_nan_in_its_gradient(x) -> None:
    found = verdicts(log_or_zero, x)["torch.where"]
    assert not found.accepted and "gradient is NaN" in found.reason, found.reason
    assert x.grad is None


def test_where_around_a_root_too() -> None:
    found = verdicts(root, torch.tensor([1.0, 4.0]))["torch.where"]
    assert not found.accepted and "gradient" in found.reason, found.reason


def test_an_epsilon_that_changes_small_quotients_is_refused() -> None:
    found = verdicts(quotient, torch.ones(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64))["an"]
    assert not found.accepted
    found = verdicts(share, torch.full((3,), 2.0), torch.full((2,), 1e3))
    assert not found["keep"].accepted
    for suggestion in kintsugi.suggest_rewrites(share)(torch.full((3,), 2.0), torch.full((2,), 1e3)):
        assert not suggestion.accepted or "1e-08" not in suggestion.source


def test_a_number_out_of_a_tensor_has_no_gradient_and_the_tensor_has_one() -> None:
    found = verdicts(slopes, torch.ones(3), torch.ones(3))["keep"]
    assert not found.accepted, "the gradient of scale would be there"


def test_a_side_that_no_input_takes_is_not_advised() -> None:
    found = verdicts(never, torch.ones(3))["torch.where"]
    assert not found.accepted
    assert verdicts(plain, torch.ones(3))["torch.where"].accepted


def test_the_sign_of_a_zero_counts() -> None:
    assert not verdicts(negative_zero, torch.ones(3))["arithmetic"].accepted


def test_a_program_that_does_not_end_with_infinities_is_left() -> None:
    found = verdicts(halves, torch.full((3,), 100.0))["out"]
    assert found.accepted, found.reason


def test_a_module_is_tried_on_copies() -> None:
    net = Net()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    found = verdicts(net, torch.randn(4, 3))["torch.where"]
    assert found.accepted or "gradient" in found.reason or "differs" in found.reason, found.reason
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert all(p.grad is None for p in net.parameters())


def test_nothing_is_advised_where_the_original_fails() -> None:
    for suggestion in kintsugi.suggest_rewrites(plain)(3):
        assert not suggestion.accepted and "raises AttributeError" in suggestion.reason


def test_the_generator_is_as_before() -> None:
    torch.manual_seed(3)
    state = torch.get_rng_state()
    verdicts(plain, torch.ones(3))
    assert torch.equal(torch.get_rng_state(), state)
