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


def perturbations(x):
    """The perturbations of Shejwalkar and Houmansadr, and ours of the same name; those of theirs as long as std."""
    mean, spread = x.mean(axis=0), std(x)
    length = np.sqrt(sum(spread**2))
    unit = mean / np.sqrt(sum(mean**2))
    sign = np.sign(mean) / np.sqrt(sum(mean != 0))
    return {"std": spread, "inverse_std": -spread, "inverse_unit": -length * unit, "inverse_sign": -length * sign}


def halving(x, limit, gamma_init=10.0, tau=1e-5, direction="std"):
    """Algorithm 1 of Shejwalkar and Houmansadr, word by word; also gamma."""
    bound, measure = limit(x)
    mean, spread = x.mean(axis=0), perturbations(x)[direction]
    gamma, succ, step = gamma_init, 0.0, gamma_init
    while abs(succ - gamma) > tau:
        if measure(mean + gamma * spread) <= bound:
            succ = gamma
            gamma = gamma + step / 2
        else:
            gamma = gamma - step / 2
        step = step / 2
    return mean + succ * spread, succ


# Rows of the examples: X, and its first six about (0.7, 1.2).
X = np.array([[0, 0], [1, 0.5], [0.2, 2], [2, 1.3], [1.1, 3], [0.7, 1.1], [10, -9]])
HC = X[:6] - np.array([0.7, 1.2])


def trimmed_mean(x, f):
    """The mean of each coordinate without its f smallest and f largest values."""
    return np.array([sum(sorted(column)[f : len(column) - f]) / (len(column) - 2 * f) for column in x.T])


def krum_choice(x, f):
    """The row with the least sum of squared distances to its n - f - 2 nearest others."""
    n = len(x)
    scores = []
    for i in range(n):
        squares = sorted(sum((x[i] - x[j]) ** 2) for j in range(n) if j != i)
        scores.append(sum(squares[: n - f - 2]))
    return scores.index(min(scores))


def byzfl_search(harm, evaluations=20, step=10.0, ratio=0.8):
    """byzfl's line search: a phase that expands and one that contracts."""
    best, most, left = 0.0, harm(0.0), evaluations - 1
    while left > 0:
        left -= 1
        tried = harm(best + step)
        if tried <= most:
            step = step * ratio
            break
        best, most, step = best + step, tried, 2 * step
    while left > 0:
        left -= 1
        tried = harm(best + step)
        if tried > most:
            best, most = best + step, tried
        step = step * ratio
    return best


def harm(x, b, rule, row):
    """How far b copies of a row move a rule from the honest mean."""
    return np.linalg.norm(rule(np.vstack([x, *[row] * b])) - x.mean(axis=0))


def fang_krum(x, b):
    """The row against Krum, and the factor that the search starts from."""
    h, d = x.shape
    n = h + b
    sums = []
    for i in range(h):
        squares = sorted(sum((x[i] - x[j]) ** 2) for j in range(h) if j != i)
        sums.append(sum(squares[: n - b - 2]))
    factor = start = (min(sums) / ((n - 2 * b - 1) * d)) ** 0.5 + max(np.linalg.norm(row) for row in x) / d**0.5
    sign = np.sign(x.mean(axis=0))
    while factor >= 1e-5 and krum_choice(np.vstack([x, *[-factor * sign] * b]), b) < h:
        factor = factor / 2
    return -factor * sign, start


def fang_intervals(x):
    """For each coordinate where the row against trimmed mean and median lies."""
    intervals = []
    for column in x.T:
        low, high, mean = min(column), max(column), sum(column) / len(column)
        if mean > 0:
            intervals.append((2 * low, low) if low < 0 else (low / 2, low))
        elif mean < 0:
            intervals.append((high, 2 * high) if high > 0 else (high, high / 2))
        else:
            intervals.append((0, 0))
    return np.array(intervals)


def rop(x, previous, z, theta, pi=0.5, reference=0.9):
    """The relocated orthogonal perturbation."""
    mean = x.mean(axis=0)
    place = pi * previous + (1 - pi) * mean
    ref = reference * previous + (1 - reference) * mean
    ones = np.ones(len(mean))
    p = ones - sum(ones * ref) / sum(ref * ref) * ref
    p = p / np.sqrt(sum(p * p))
    q = np.sin(np.radians(theta)) * p + np.cos(np.radians(theta)) * ref / np.sqrt(sum(ref * ref))
    return place + z * q / np.sqrt(sum(q * q))


def mimic_rounds(z, rounds):
    """For each round the direction learned and the number of the row copied."""
    mean, learned = np.zeros(len(z)), []
    for t, x in enumerate(rounds):
        mean = t / (1 + t) * mean + x.mean(axis=0) / (1 + t)
        u = sum(sum((row - mean) * z) * (row - mean) for row in x)
        z = t / (1 + t) * z + u / np.sqrt(sum(u * u)) / (1 + t)
        z = z / np.sqrt(sum(z * z))
        products = [sum(row * z) for row in x]
        learned.append((z, products.index(max(products))))
    return learned


def poisonedfl_round(s, h, a, c):
    """The wished movement of PoisonedFL, entry by entry; a: None before the first one."""
    long, far = np.sqrt(sum(h**2)), 0 if a is None else np.sqrt(sum(a**2))
    v = np.array([abs(h[j] - (0 if a is None else a[j]) * long / (far + 1e-9)) for j in range(len(h))])
    return c * long * v * s / (np.sqrt(sum(v**2)) + 1e-9)


def poisonedfl(honest, s, n_rounds, rate, c, period, attacked=lambda t: True):
    """A run of plain averages with one forged row, or in other rounds a first honest one; gives rows, models and c."""
    from math import comb

    d = len(s)
    enough = next(k for k in range(d + 1) if sum(comb(d, i) for i in range(k + 1)) / 2**d >= 0.99)
    models, a, found = [np.zeros(d)], None, []
    for t in range(n_rounds):
        w = models[t]
        if t and t % period == 0:
            total = w - models[(t // period - 1) * period + 1]
            total = np.where(total == 0, w, total)
            if sum(np.sign(total) == s) < enough and 0.7 * c >= 0.5:
                c = 0.7 * c
        h = w - models[t - 1] if t else np.zeros(d)
        m = np.zeros(d)
        if h.any() and attacked(t):
            m = a = poisonedfl_round(s, h, a, c)
        forged = -m / rate if attacked(t) else honest[0]
        found.append((forged, w, c))
        models.append(w - rate * (sum(honest) + forged) / (len(honest) + 1))
    return found


def sparse_hybrid(honest, mask, z, scale=1.5, inverse=False, cap=None):
    """mean - factor std sign, coordinate by coordinate."""
    mean, std = honest.mean(0), honest.std(0, ddof=1)
    if cap == "iqr":
        low, high = np.percentile(std[mask], [25, 75])
        std = np.where(mask, np.minimum(std, high + 1.5 * (high - low)), std)
    elif cap == "z_score":
        std = np.where(mask, np.minimum(std, std[mask].mean() + 2 * std[mask].std(ddof=1)), std)
    e = np.sign(mean) if inverse else 1.0
    return mean - std * e * np.where(mask, scale, z)


def best_sparse_factor(honest, mask, scale):
    """The halving search with all distances computed anew."""
    z = step = 10.0
    best = 0.0
    limit = min(((honest - row) ** 2).sum() for row in honest)
    for _ in range(60):
        if abs(z - best) <= 1e-5:
            break
        if ((honest - sparse_hybrid(honest, mask, z, scale)) ** 2).sum() <= limit:
            best, z = z, z + step / 2
        else:
            z -= step / 2
        step /= 2
    return best
