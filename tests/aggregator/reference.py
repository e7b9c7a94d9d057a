"""Every rule as a slow float64 loop, typed from its equation; imports nothing of the project."""

from itertools import combinations

import numpy as np


def trsvd(rows, r):
    """PCA by an SVD of the d columns: mean and the r leading directions, as rows."""
    mean = rows.mean(axis=0)
    _, _, directions = np.linalg.svd(rows - mean, full_matrices=False)
    return mean, directions[:r]


def boba_residuals(x, mean, directions):
    """||x_i - Pi_P(x_i)||^2, by subtracting the projection."""
    return np.array([np.sum((row - mean - directions.T @ (directions @ (row - mean))) ** 2) for row in x])


def boba(x, classes, f, p_min=-0.5, max_iter=20, stage_1="alternating", stage_2=True):
    """Algorithm 1 of the paper, one SVD of the n - f rows a pass; also the accepted clients and p_hat."""
    x, classes = np.asarray(x, dtype=np.float64), np.asarray(classes, dtype=np.float64)
    n, c = len(x), len(classes)
    mean, directions = trsvd(classes, c - 1)
    if stage_1 == "exhaustive":
        best = np.inf
        for subset in combinations(range(n), n - f):
            m, u = trsvd(x[list(subset)], c - 1)
            loss = np.sort(boba_residuals(x, m, u))[: n - f].sum()
            if loss < best:
                best, mean, directions = loss, m, u
    elif stage_1 == "alternating":
        before = None
        for _ in range(max_iter):
            nearest = set(np.argsort(boba_residuals(x, mean, directions), kind="stable")[: n - f].tolist())
            if nearest == before:
                break
            before = nearest
            mean, directions = trsvd(x[sorted(nearest)], c - 1)
    codes = np.array([directions @ (row - mean) for row in x])
    system = np.vstack([np.array([directions @ (row - mean) for row in classes]).T, np.ones(c)])
    p_hat = np.array([np.linalg.lstsq(system, np.append(code, 1.0), rcond=None)[0] for code in codes])
    low = p_hat.min(axis=1)
    accepted = low >= p_min
    if accepted.sum() < n - f:
        accepted = np.isin(np.arange(n), np.argsort(-low, kind="stable")[: n - f])
    if not stage_2:
        accepted[:] = True
    return mean + directions.T @ codes[accepted].mean(axis=0), accepted, p_hat


def mean_of_best(x, scores, keep):
    """Mean of the rows with the ``keep`` smallest scores; of equal scores the first."""
    best = np.argsort(np.asarray(scores), kind="stable")[:keep]
    return sum(np.asarray(x[i], dtype=np.float64) for i in best) / keep


def self_rejection(x, f, loss):
    """Keep the n - f rows with the smallest loss of their own."""
    return mean_of_best(x, [loss(row) for row in x], len(x) - f)


def average_rejection(x, f, loss):
    """Keep the n - f rows without which the mean of the others has the largest loss."""
    n = len(x)
    without = [loss(sum(x[j] for j in range(n) if j != i) / (n - 1)) for i in range(n)]
    return mean_of_best(x, [-value for value in without], n - f)


def zeno(x, f, loss, learning_rate, rho):
    """Keep the n - f rows with the smallest loss plus price of the step."""
    scores = [loss(row) + rho * sum((learning_rate * value) ** 2 for value in row) for row in x]
    return mean_of_best(x, scores, len(x) - f)


def bygars(x, gradient, learning_rate, steps, step_size, trust=None):
    """Sum of q_i h_i, and q; ``gradient`` is the server's at w minus what it is given."""
    h = [row / np.sqrt(sum(value**2 for value in row)) for row in x]
    q = [0.0] * len(x) if trust is None else list(trust)
    for _ in range(steps):
        g = gradient(learning_rate * sum(q_i * h_i for q_i, h_i in zip(q, h, strict=True)))
        g = g / np.sqrt(sum(value**2 for value in g))
        q = [q_i + step_size * learning_rate * float(h_i @ g) for q_i, h_i in zip(q, h, strict=True)]
    return sum(q_i * h_i for q_i, h_i in zip(q, h, strict=True)), q


def bucket_means(x, order, s, keep_leftover):
    """Mean of the first s clients of an order, of the next s, ...; what fills no bucket is dropped or one more."""
    means = []
    for start in range(0, len(order), s):
        bucket = order[start : start + s]
        if len(bucket) == s or keep_leftover:
            means.append(sum(x[i] for i in bucket) / len(bucket))
    return np.array(means)


def weighted_bucket_means(x, buckets, weights):
    """Mean of each bucket by the clients' weights, a client as often as it is in."""
    return np.array([sum(weights[i] * x[i] for i in b) / sum(weights[i] for i in b) for b in buckets])


def nearest_neighbours(x, f):
    """For every row the n - f nearest ones, itself first, of equally near ones the first."""
    n = len(x)
    sets = []
    for i in range(n):
        distances = [np.sum((x[i] - x[j]) ** 2) for j in range(n)]
        others = sorted((j for j in range(n) if j != i), key=lambda j: (distances[j], j))
        sets.append([i, *others[: n - f - 1]])
    return sets


def nearest_neighbor_mixing(x, f):
    """Every row replaced by the mean of its n - f nearest ones."""
    return np.array([sum(x[j] for j in near) / (len(x) - f) for near in nearest_neighbours(x, f)])


def clipped(x, radius):
    """Every row, no longer than the radius."""
    return np.array([clip(row, radius) for row in x])


def adaptive_clipping(x, f):
    """Every row clipped to the (k + 1)-th largest norm, k = floor(2 f (n - f) / n)."""
    n, k = len(x), 0
    while (k + 1) * n <= 2 * f * (n - f):
        k += 1
    return clipped(x, sorted((np.sqrt(np.sum(row**2)) for row in x), reverse=True)[k])


def server_mixture(update, classes, share):
    """(1 - lambda) mu + lambda / c sum of gamma_z."""
    return (1 - share) * update + share / len(classes) * sum(classes)


def distance_sum(y, x, weights):
    """F(y) = sum alpha_i ||y - z_i||."""
    return sum(w * np.sqrt(np.sum((y - row) ** 2)) for w, row in zip(weights, x, strict=True))


def majority_radius(x, weights):
    """Smallest radius around a row that holds more than half of the weight, and that row's number."""
    radii = []
    for row in x:
        distances = [np.sqrt(np.sum((row - other) ** 2)) for other in x]
        held = 0.0
        for j in np.argsort(distances, kind="stable"):
            held += weights[j]
            if held > 0.5 + 1e-12:
                radii.append(distances[j])
                break
    return min(radii), int(np.argmin(radii))


def geometric_median(x, weights, steps=3000):
    """Weiszfeld from the mean; on a row, Vardi and Zhang's test and step; the best of what was met and the rows."""
    y = sum(w * row for w, row in zip(weights, x, strict=True))
    best = min([*x, y], key=lambda point: distance_sum(point, x, weights))
    for _ in range(steps):
        distances = np.array([np.sqrt(np.sum((y - row) ** 2)) for row in x])
        away = distances > 0
        if not away.any():
            break
        pulls = [w / r for w, r in zip(weights[away], distances[away], strict=True)]
        target = sum(p * row for p, row in zip(pulls, x[away], strict=True)) / sum(pulls)
        force, here = sum(pulls) * np.sqrt(np.sum((target - y) ** 2)), weights[~away].sum()
        if force <= here:
            break
        y = y + (1 - here / force) * (target - y)
    return min([best, y], key=lambda point: distance_sum(point, x, weights))


def maximum_correntropy(x, weights, width, start, steps=3000):
    """The half-quadratic fixed point from a row."""
    y = x[start]
    for _ in range(steps):
        kernel = [w * np.exp(-np.sum((y - row) ** 2) / (2 * width**2)) for w, row in zip(weights, x, strict=True)]
        y = sum(k * row for k, row in zip(kernel, x, strict=True)) / sum(kernel)
    return y


def median(x, middle="upper"):
    """Middle value of every coordinate; of two, the lower one, the upper one or their mean."""
    columns = [sorted(column) for column in np.asarray(x, dtype=np.float64).T.tolist()]
    pairs = [(c[(len(x) - 1) // 2], c[len(x) // 2]) for c in columns]
    return np.array([{"lower": low, "upper": high, "mean": (low + high) / 2}[middle] for low, high in pairs])


def trimmed_mean(x, f):
    """Mean of every coordinate without its f smallest and f largest values."""
    columns = [sorted(column)[f : len(x) - f] for column in np.asarray(x, dtype=np.float64).T.tolist()]
    return np.array([sum(c) / len(c) for c in columns])


PROBLEMS = ["random", "tied", "rank-deficient", "badly scaled", "offset"]


def problem(name, n, d):
    """Updates that are easy to get wrong, each in its own way."""
    x = np.random.default_rng(PROBLEMS.index(name)).standard_normal((n, d))
    if name == "tied":
        x[1], x[n // 2 :] = x[0], x[n // 2]
    elif name == "rank-deficient":
        x = x[:, :1] * np.arange(1.0, d + 1)
    elif name == "badly scaled":
        x *= np.logspace(-6, 3, n)[:, None]
    elif name == "offset":
        x = 1e3 + 1e-2 * x
    return x


def normalized_average(x, weights=None):
    """Sum of alpha_m g_m / ||g_m||; a zero row adds nothing."""
    shares = np.ones(len(x)) if weights is None else np.asarray(weights, dtype=np.float64)
    total = np.zeros(x.shape[1])
    for row, share in zip(x, shares / shares.sum(), strict=True):
        norm = np.sqrt(sum(value**2 for value in row))
        if norm > 0:
            total += share * row / norm
    return total


def krum_scores(x, f, fewer=2):
    """Sum of squared distances to the n - f - 2 nearest others, or n - f - 1."""
    n = len(x)
    scores = []
    for i in range(n):
        others = sorted(sum((x[i] - x[j]) ** 2) for j in range(n) if j != i)
        scores.append(sum(others[: n - f - fewer]))
    return scores


def krum(x, f):
    """The row of least score."""
    return mean_of_best(x, krum_scores(x, f), 1)


def multi_krum(x, f, m=None):
    """Mean of the m rows of least score."""
    return mean_of_best(x, krum_scores(x, f), len(x) - f if m is None else m)


def fltrust(x, server):
    """Sum of TS_i ||g_0|| g_i / ||g_i||, over the sum of TS_i; TS_i = ReLU(cos)."""
    length = np.sqrt(server @ server)
    total, trust = np.zeros(len(server)), 0.0
    for row in x:
        norm = np.sqrt(row @ row)
        score = max(row @ server / (norm * length), 0.0)
        total, trust = total + score * length / norm * row, trust + score
    return total / trust


def rage(x, n_iterations, centred=False):
    """Spectral filtering with an SVD of the d columns in each step."""
    w = [1 / len(x)] * len(x)
    for _ in range(n_iterations):
        mu = sum(w_i * row for w_i, row in zip(w, x, strict=True)) / sum(w)
        a = np.array([np.sqrt(w_i / sum(w)) * (row - mu) for w_i, row in zip(w, x, strict=True)])
        v = np.linalg.svd(a, full_matrices=False)[2][0]
        tau = [((row - mu if centred else row) @ v) ** 2 for row in x]
        tau_max = max(t for t, w_i in zip(tau, w, strict=True) if w_i > 0)
        w = [(1 - t / tau_max) * w_i for t, w_i in zip(tau, w, strict=True)]
    return sum(w_i * row for w_i, row in zip(w, x, strict=True)) / sum(w)


# The literal problems of several rules.
X = np.array([[0, 0], [1, 0.5], [0.2, 2], [2, 1.3], [1.1, 3], [0.7, 1.1], [10, -9]])
Z = np.array(
    [
        [1, 2, -1],
        [1.5, 1.8, -0.6],
        [0.4, 2.5, -1.2],
        [0.9, 1.2, 0.1],
        [1.2, 2.2, -2],
        [-3, 0.5, 4],
        [-2.9, 0.6, 4.2],
    ]
)


def length(row):
    """||row||."""
    return float(np.sqrt(sum(float(value) ** 2 for value in row)))


def distance(a, b):
    """||a - b||."""
    return length([float(p) - float(q) for p, q in zip(a, b, strict=True)])


def mean_of(x, rows):
    """Mean of some rows."""
    return sum(x[i] for i in rows) / len(rows)


def medoid(x):
    """The row with the least sum of distances to all others."""
    return mean_of_best(x, [sum(distance(a, b) for b in x) for a in x], 1)


def aksel(x, f):
    """Mean of the n - f rows nearest to the coordinate-wise median."""
    pivot = median(x, "mean")
    return mean_of_best(x, [distance(row, pivot) for row in x], len(x) - f)


def monna(x, f, trusted):
    """Mean of the n - f rows nearest to one of them, this one first."""
    return mean_of_best(x, [-1 if i == trusted else distance(row, x[trusted]) for i, row in enumerate(x)], len(x) - f)


def monna_of_server(x, f, server, include):
    """Mean of the n - f rows nearest to the server's, which may count as one more."""
    near = np.argsort([distance(row, server) for row in x], kind="stable")[: len(x) - f]
    rows = [x[i] for i in near] + ([server] if include else [])
    return sum(rows) / len(rows)


def minimum_diameter_average(x, f):
    """Mean of the subset of n - f rows with the least diameter, the first of equal ones, and the subset."""
    best, least = None, np.inf
    for subset in combinations(range(len(x)), len(x) - f):
        diameter = max([distance(x[i], x[j]) for i, j in combinations(subset, 2)], default=0)
        if diameter < least:
            best, least = subset, diameter
    return mean_of(x, best), best


def top_variance(x):
    """Largest eigenvalue of the d x d covariance, about the mean and over the number of rows."""
    mean = sum(x) / len(x)
    covariance = sum(np.outer(row - mean, row - mean) for row in x) / len(x)
    return np.linalg.eigvalsh(covariance)[-1]


def smallest_eigenvalue_average(x, f):
    """Mean of the subset of n - f rows with the least top variance, the first of equal ones, and the subset."""
    best, least = None, np.inf
    for subset in combinations(range(len(x)), len(x) - f):
        variance = top_variance(x[list(subset)])
        if variance < least * (1 - 1e-12):
            best, least = subset, variance
    return mean_of(x, best), best


def caf(x, f):
    """The mean of least variance, its c and (sum c, lambda) of every step, with d x d covariances."""
    n, steps = len(x), []
    c, least = [1.0] * n, np.inf
    result, best = sum(x) / n, list(c)
    while sum(c) > n - 2 * f + 1e-12:
        mu = sum(c_i * row for c_i, row in zip(c, x, strict=True)) / sum(c)
        covariance = sum(c_i * np.outer(row - mu, row - mu) for c_i, row in zip(c, x, strict=True)) / sum(c)
        values, vectors = np.linalg.eigh(covariance)
        steps.append((sum(c), values[-1]))
        if values[-1] < least:
            result, best, least = mu, list(c), values[-1]
        tau = [((row - mu) @ vectors[:, -1]) ** 2 for row in x]
        highest = max(t for t, c_i in zip(tau, c, strict=True) if c_i > 0)
        if values[-1] <= 1e-13 * max(row @ row for row, c_i in zip(x, c, strict=True) if c_i > 0):
            break
        c = [c_i * (1 - t / highest) if t < highest * (1 - 1e-9) else 0.0 for t, c_i in zip(tau, c, strict=True)]
    return result, best, steps


def clip(vector, radius):
    """The vector, no longer than the radius."""
    norm = np.sqrt(sum(value**2 for value in vector))
    return vector if norm <= radius else vector * (radius / norm)


def centred_clipping(x, radius, start=None, n_iterations=1):
    """L times v + mean of the clipped differences."""
    v = np.zeros(x.shape[1]) if start is None else start
    for _ in range(n_iterations):
        v = v + sum(clip(row - v, radius) for row in x) / len(x)
    return v


def sequential_centred_clipping(x, buckets, radius, start=None, average_first=False):
    """For each bucket v + mean of the clipped differences, or + the clipped mean of them."""
    v = np.zeros(x.shape[1]) if start is None else start
    for bucket in buckets:
        if average_first:
            v = v + clip(sum(x[i] for i in bucket) / len(bucket) - v, radius)
        else:
            v = v + sum(clip(x[i] - v, radius) for i in bucket) / len(bucket)
    return v


def rfa(x, weights, nu, n_iterations):
    """Weiszfeld steps from 0, distances below nu counting as nu."""
    z = np.zeros(x.shape[1])
    for _ in range(n_iterations):
        w = [a / max(nu, distance(z, row)) for a, row in zip(weights, x, strict=True)]
        z = sum(w_i * row for w_i, row in zip(w, x, strict=True)) / sum(w)
    return z


def clipped_sum(x, radius, p=2.0):
    """Sum of g_n min(1, radius / ||g_n||_p)."""
    return sum(row * min(1.0, radius / np.linalg.norm(row, p)) for row in x)


def average(x, weights=None):
    """Sum of alpha_i x_i, with alpha of sum 1."""
    weights = [1.0] * len(x) if weights is None else [float(w) for w in weights]
    total = np.zeros(x.shape[1])
    for row, weight in zip(x, weights, strict=True):
        total += weight / sum(weights) * np.asarray(row, dtype=np.float64)
    return total
