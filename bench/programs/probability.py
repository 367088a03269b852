"""Gaussian processes, probabilistic programs, filters and samplers."""

from __future__ import annotations

import math
import random
import warnings

import torch

from bench.programs import Compile, Step, program


def _regression(needs_noise: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.linspace(0, 1, 20)
    noise = torch.sin(x * 71) * 0.1 if needs_noise else 0.0
    return x, torch.sin(x * 6) + noise


def _gaussian_process() -> tuple[object, object]:
    import gpytorch

    x, y = _regression()

    class Model(gpytorch.models.ExactGP):
        def __init__(self, likelihood: object) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, at: torch.Tensor) -> object:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(at), self.covar_module(at))

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    return Model(likelihood), likelihood


@program(needs=("gpytorch",))
def gaussian_process_training(compile: Compile) -> Step:
    import gpytorch

    model, likelihood = _gaussian_process()
    x, y = _regression()
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)

    @compile
    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = -objective(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return lambda _: step()


@program(needs=("gpytorch",))
def gaussian_process_prediction(compile: Compile) -> Step:
    import gpytorch

    model, likelihood = _gaussian_process()
    model.eval()
    likelihood.eval()

    @compile
    def predict(at: torch.Tensor) -> torch.Tensor:
        with torch.no_grad(), gpytorch.settings.fast_pred_var():
            return likelihood(model(at)).mean

    points = [torch.linspace(0, 1, 10) + i / 50 for i in range(5)]
    return lambda k: predict(points[k % 5])


@program(needs=("botorch",))
def acquisition(compile: Compile) -> Step:
    warnings.simplefilter("ignore")
    from botorch.acquisition import LogExpectedImprovement
    from botorch.models import SingleTaskGP

    x, y = _regression()
    model = SingleTaskGP(x[:, None].double(), y[:, None].double())
    model.eval()
    improvement = LogExpectedImprovement(model, best_f=0.9)

    @compile
    def value(at: torch.Tensor) -> torch.Tensor:
        return improvement(at)

    points = [torch.full((3, 1, 1), i / 11, dtype=torch.double) for i in range(11)]
    return lambda k: value(points[k % 11])


@program(needs=("pyro",))
def variational_inference(compile: Compile) -> Step:
    import pyro
    import pyro.distributions as dist
    from pyro.infer import SVI, Trace_ELBO

    data = torch.tensor([0.2, 0.5, 0.9, 0.4])
    prefix = f"program{len(pyro.get_param_store())}"  # the store of parameters is the process's

    def model(values: torch.Tensor) -> None:
        mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(values)):
            pyro.sample("value", dist.Normal(mean, 0.5), obs=values)

    def guide(_: torch.Tensor) -> None:
        loc = pyro.param(f"{prefix}.loc", torch.tensor(0.0))
        scale = pyro.param(f"{prefix}.scale", torch.tensor(1.0), constraint=dist.constraints.positive)
        pyro.sample("mean", dist.Normal(loc, scale))

    pyro.param(f"{prefix}.loc", torch.tensor(0.0))
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.01}), loss=Trace_ELBO())

    @compile
    def step(values: torch.Tensor) -> float:
        return svi.step(values)

    def seeded(k: int) -> float:
        torch.manual_seed(k)
        return step(data)

    return seeded


@program
def metropolis(compile: Compile) -> Step:
    state = {"at": torch.zeros(3), "energy": 0.0, "taken": 0}
    rng = random.Random(0)
    matrix = torch.tensor([[2.0, 0.3, 0.0], [0.3, 1.0, 0.1], [0.0, 0.1, 0.5]])
    generator = torch.Generator().manual_seed(0)

    @compile
    def step() -> torch.Tensor:
        proposal = state["at"] + torch.randn(3, generator=generator) * 0.5
        energy = float(proposal @ matrix @ proposal)
        if math.log(rng.random() + 1e-12) < state["energy"] - energy:
            state.update(at=proposal, energy=energy, taken=state["taken"] + 1)
        return state["at"] * state["taken"]

    return lambda _: step()


@program
def kalman_filter(compile: Compile) -> Step:
    transition = torch.tensor([[1.0, 0.1], [0.0, 1.0]])
    state = {"mean": torch.zeros(2), "covariance": torch.eye(2)}

    @compile
    def step(seen: float) -> torch.Tensor:
        mean = transition @ state["mean"]
        covariance = transition @ state["covariance"] @ transition.T + 0.01 * torch.eye(2)
        gain = covariance[:, 0] / (covariance[0, 0] + 0.1)
        state["mean"] = mean + gain * (seen - mean[0])
        state["covariance"] = covariance - torch.outer(gain, covariance[0])
        return state["mean"].clone()

    return lambda k: step(math.sin(k / 5))


@program
def particle_filter(compile: Compile) -> Step:
    generator = torch.Generator().manual_seed(0)
    state = {"at": torch.zeros(64)}

    @compile
    def step(seen: float) -> torch.Tensor:
        moved = state["at"] + torch.randn(64, generator=generator) * 0.1
        weights = torch.exp(-((moved - seen) ** 2) / 0.02) + 1e-9
        weights = weights / weights.sum()
        if 1 / (weights**2).sum() < 32:
            picked = torch.multinomial(weights, 64, replacement=True, generator=generator)
            moved = moved[picked]
        state["at"] = moved
        return moved.mean()

    return lambda k: step(math.sin(k / 5))


@program
def hidden_markov_model(compile: Compile) -> Step:
    transition = torch.tensor([[0.9, 0.1, 0.0], [0.0, 0.8, 0.2], [0.1, 0.0, 0.9]]).log()
    emission = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]).log()

    @compile
    def likelihood(symbols: list[int]) -> torch.Tensor:
        alpha = torch.full((3,), -math.log(3)) + emission[:, symbols[0]]
        for symbol in symbols[1:]:
            alpha = torch.logsumexp(alpha[:, None] + transition, 0) + emission[:, symbol]
        return alpha.logsumexp(0)

    sequences = [[(i * j + j) % 3 for j in range(6 + i % 3)] for i in range(12)]
    return lambda k: likelihood(sequences[k % 12])


@program(needs=("tensordict",))
def tensordicts(compile: Compile) -> Step:
    from tensordict import TensorDict

    layer = torch.nn.Linear(8, 4)

    @compile
    def step(data: object) -> object:
        out = data.clone()
        out["hidden"] = layer(out["observation"]).relu()
        out["nested", "value"] = out["hidden"].mean(-1, keepdim=True)
        return out.select("hidden", ("nested", "value"))[:2]

    batches = [TensorDict({"observation": torch.full((4, 8), i / 5)}, batch_size=[4]) for i in range(5)]
    return lambda k: step(batches[k % 5]).to_dict()


@program(needs=("kornia",))
def image_augmentation(compile: Compile) -> Step:
    import kornia.augmentation as augmentation

    pipeline = augmentation.AugmentationSequential(
        augmentation.RandomHorizontalFlip(p=0.5),
        augmentation.RandomErasing(p=0.5),
        augmentation.Normalize(torch.tensor([0.5] * 3), torch.tensor([0.2] * 3)),
    )

    @compile
    def augment(images: torch.Tensor) -> torch.Tensor:
        return pipeline(images)

    images = torch.linspace(0, 1, 2 * 3 * 16 * 16).view(2, 3, 16, 16)

    def seeded(k: int) -> torch.Tensor:
        torch.manual_seed(k)
        return augment(images)

    return seeded


@program
def rejection_sampling(compile: Compile) -> Step:
    generator = torch.Generator().manual_seed(0)

    @compile
    def sample(count: int) -> torch.Tensor:
        kept: list[torch.Tensor] = []
        while len(kept) < count:
            candidate = torch.rand(2, generator=generator) * 2 - 1
            if candidate.norm() <= 1:
                kept.append(candidate)
        return torch.stack(kept)

    return lambda k: sample(3 + k % 3)
