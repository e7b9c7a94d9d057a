"""The attacks that need a formula as slow float64 loops, typed from the papers; imports nothing of the project."""

import numpy as np


def problem(name, seed=0):
    """Honest updates that stress arithmetic, one a row."""
    draw = np.random.default_rng(seed)
    h, d = 7 + seed % 5, 13
    x = draw.normal(size=(h, d))
    if name == "tied":
        x[1::2] = x[0]
    elif name == "rank-deficient":
        x = draw.normal(size=(h, 2)) @ draw.normal(size=(2, d))
    elif name == "badly scaled":
        x *= np.where(np.arange(h) % 2, 1e-6, 1e3)[:, None]
    elif name == "offset":
        x = 1e3 + 1e-2 * x
    else:
        assert name == "random"
    return x


PROBLEMS = ["random", "tied", "rank-deficient", "badly scaled", "offset"]


def std(x):
    """Sample standard deviation of each coordinate."""
    h, d = x.shape
    return np.array([sum((x[i, j] - sum(x[:, j]) / h) ** 2 for i in range(h)) / (h - 1) for j in range(d)]) ** 0.5


def max_limit(x):
    """Max_ij ||x_i - x_j||, and max_i ||y - x_i|| for any y."""
    far = lambda y: max(np.linalg.norm(y - row) for row in x)  # noqa: E731
    return max(far(row) for row in x), far


def sum_limit(x):
    """Max_i sum_j ||x_i - x_j||^2, and sum_i ||y - x_i||^2 for any y."""
    total = lambda y: sum(np.sum((y - row) ** 2) for row in x)  # noqa: E731
    return max(total(row) for row in x), total


def halving(x, limit, gamma_init=10.0, tau=1e-5):
    """Algorithm 1 of Shejwalkar and Houmansadr with perturbation +std, word by word; also gamma."""
    bound, measure = limit(x)
    mean, spread = x.mean(axis=0), std(x)
    gamma, succ, step = gamma_init, 0.0, gamma_init
    while abs(succ - gamma) > tau:
        if measure(mean + gamma * spread) <= bound:
            succ = gamma
            gamma = gamma + step / 2
        else:
            gamma = gamma - step / 2
        step = step / 2
    return mean + succ * spread, succ
