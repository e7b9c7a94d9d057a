"""The field's rules as slow float64 loops, typed from their equations; of the project they import nothing."""

from itertools import combinations
from math import floor, log

import numpy as np

from tests.aggregator.reference import length


def middle(values):
    """Median; the mean of the middle two of an even number."""
    values = sorted(values)
    return (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2


def near_mean(column, centre, k):
    """Mean of the k values nearest to the centre; of two equally near the smaller one."""
    return sum(sorted(column, key=lambda value: (abs(value - centre), value))[:k]) / k


def mean_around_median(x, f):
    """Per coordinate, mean of the n - f values nearest to the median."""
    return np.array([near_mean(column, middle(column), len(x) - f) for column in np.asarray(x, np.float64).T.tolist()])


def phocas(x, f):
    """Per coordinate, mean of the n - f values nearest to the mean of those in the middle."""
    result = []
    for column in np.asarray(x, np.float64).T.tolist():
        inner = sorted(column)[f : len(x) - f]
        result.append(near_mean(column, sum(inner) / len(inner), len(x) - f))
    return np.array(result)


def bulyan(x, f, once=False):
    """Krum theta times among the rows left, then the mean around the median; also the rows in order of selection."""
    x = np.asarray(x, np.float64)
    left, selected = list(range(len(x))), []
    while len(selected) < len(x) - 2 * f:
        scores = []
        for i in left:
            others = sorted(sum((x[i] - x[j]) ** 2) for j in left if j != i)
            scores.append(sum(others[: max(len(left) - f - 2, 1)]))
        if once:
            selected = [left[i] for i in np.argsort(scores, kind="stable")[: len(x) - 2 * f]]
            break
        selected.append(left.pop(int(np.argmin(scores))))
    return mean_around_median(x[selected], 2 * f), selected


def dnc(x, f, coordinates, c=1.0):
    """Mean of the rows of least score in every iteration, with an SVD of the columns; also scores and rows kept."""
    x, scores, kept = np.asarray(x, np.float64), [], []
    for columns in coordinates:
        centred = x[:, list(columns)] - x[:, list(columns)].mean(axis=0)
        v = np.linalg.svd(centred, full_matrices=False)[2][0]
        scores.append([float(row @ v) ** 2 for row in centred])
        kept.append(set(np.argsort(scores[-1], kind="stable")[: len(x) - floor(c * f)].tolist()))
    often = [sum(i in good for good in kept) for i in range(len(x))]
    chosen = [i for i in range(len(x)) if often[i] == max(often)]
    return x[chosen].mean(axis=0), scores, chosen


def largest_cluster(points):
    """Mean shift with a flat kernel, one point after the other; also the bandwidth."""
    points = np.asarray(points, np.float64)
    n = len(points)
    width = sum(sorted(length(p - q) for q in points)[max(n // 2, 1) - 1] for p in points) / n
    modes = []
    for p in points:
        inside, mode = None, p
        for _ in range(300):
            now = [j for j in range(n) if length(points[j] - mode) <= width + 1e-9]
            if now == inside:
                break
            inside, mode = now, points[now].mean(axis=0)
        modes.append((len(inside), mode))
    kept = []
    for _, mode in sorted(modes, key=lambda pair: -pair[0]):
        if all(length(mode - other) > width + 1e-9 for other in kept):
            kept.append(mode)
    labels = []
    for p in points:
        gaps = [length(p - mode) for mode in kept]
        labels.append(int(np.argmin(gaps)) if min(gaps) <= width + 1e-9 else -1)
    best = int(np.argmax([labels.count(k) for k in range(len(kept))]))
    return [i for i in range(n) if labels[i] == best], width


def signguard(x, columns, lower=0.1, upper=3.0, scaled=False):
    """Mean of what passes both filters, clipped; also M, S1, features and bandwidth."""
    x = np.asarray(x, np.float64)
    norms = [length(row) for row in x]
    m = middle(norms)
    s1 = [i for i, norm in enumerate(norms) if lower * m < norm < upper * m]
    features = np.array([[np.mean(row > 0), np.mean(row == 0), np.mean(row < 0)] for row in x[:, list(columns)]])
    if scaled:
        features = features / np.where(features.max(axis=0) > 0, features.max(axis=0), 1)
    s2, width = largest_cluster(features)
    chosen = [i for i in s1 if i in s2] or s1 or list(range(len(x)))
    total = sum(x[i] * (min(1, m / norms[i]) if norms[i] else 1) for i in chosen)
    return total / len(chosen), {"M": m, "S1": s1, "features": features, "bandwidth": width, "chosen": chosen}


def sign_vote(x):
    """Sign of the sum of signs."""
    sign = lambda value: (value > 0) - (value < 0)  # noqa: E731
    return np.array([sign(sum(sign(value) for value in column)) for column in np.asarray(x, np.float64).T.tolist()])


def cosine(a, b):
    """Cosine; 0 where a row is zero."""
    return float(a @ b) / (length(a) * length(b)) if length(a) and length(b) else 0.0


def foolsgold(x, history, kappa=1.0):
    """Sum of w_i x_i, and w."""
    x, history = np.asarray(x, np.float64), np.asarray(history, np.float64)
    n = len(x)
    cs = [[0.0 if i == j else cosine(history[i], history[j]) for j in range(n)] for i in range(n)]
    v = [max(row) for row in cs]
    for i in range(n):
        for j in range(n):
            if i != j and v[j] > v[i]:
                cs[i][j] *= v[i] / v[j]
    alpha = [min(max(1 - max(row), 0), 1) for row in cs]
    w = []
    for a in alpha:
        a = min(a / max(alpha), 0.99) if max(alpha) > 1e-12 else 0
        w.append(min(max(kappa * (log(a / (1 - a)) + 0.5), 0), 1) if a > 0 else 0.0)
    return sum(w_i * row for w_i, row in zip(w, x, strict=True)), w


def flame(x, model, learning_rate):
    """Clipped mean of the first component of more than half of the models; also admitted, joining distance and S."""
    x, model = np.asarray(x, np.float64), np.asarray(model, np.float64)
    n = len(x)
    unit = [(model - learning_rate * row) / length(model - learning_rate * row) for row in x]
    pairs = sorted((sum((unit[i] - unit[j]) ** 2) / 2, i, j) for i, j in combinations(range(n), 2))
    part = [{i} for i in range(n)]
    admitted, joined = [0], 0.0
    for distance, i, j in pairs:
        merged = part[i] | part[j]
        for k in merged:
            part[k] = merged
        if len(merged) >= n // 2 + 1:
            admitted, joined = sorted(merged), distance
            break
    radius = middle([length(row) for row in x])
    total = sum(x[i] * (min(1, radius / length(x[i])) if length(x[i]) else 1) for i in admitted)
    return total / len(admitted), {"admitted": admitted, "joined": joined, "S": learning_rate * radius}


def gradient_splitting(x, f, groups, rule):
    """Mean of the n - f rows nearest to the rule's answers; also these, and the scores."""
    x = np.asarray(x, np.float64)
    answers = [rule(x[:, list(group)]) for group in groups]
    scores = [sum(length(row[list(g)] - a) for g, a in zip(groups, answers, strict=True)) for row in x]
    kept = np.argsort(scores, kind="stable")[: len(x) - f].tolist()
    return x[kept].mean(axis=0), {"answers": answers, "scores": scores, "kept": sorted(kept)}


def clipped_clustering(x, norms=(), linkage="average", max_radius=1e5):
    """Clipped mean of the larger cluster; also tau and the cluster."""
    x = np.asarray(x, np.float64)
    lengths = [length(row) for row in x]
    tau = min(middle([*norms, *lengths]), max_radius)
    apart = {pair: 1 - cosine(x[pair[0]], x[pair[1]]) for pair in combinations(range(len(x)), 2)}
    clusters = [[i] for i in range(len(x))] if len(x) > 2 else [list(range(len(x)))]

    def distance(a, b):
        between = [apart[min(i, j), max(i, j)] for i in a for j in b]
        return sum(between) / len(between) if linkage == "average" else min(between)

    while len(clusters) > 2:
        a, b = min(combinations(range(len(clusters)), 2), key=lambda pair: distance(*(clusters[k] for k in pair)))
        clusters[a] = sorted(clusters[a] + clusters.pop(b))
    kept = max(clusters, key=len)
    total = sum(x[i] * (min(1, tau / lengths[i]) if lengths[i] else 1) for i in kept)
    return total / len(kept), {"tau": tau, "kept": kept}
