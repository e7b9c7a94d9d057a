"""Rules of 2020 to 2026 as slow float64 loops, typed from their equations; of the project they import nothing."""

import numpy as np

from tests.aggregator.reference import clip, length
from tests.aggregator.reference_peers import middle

U = np.array([[0, 0], [1, 0.5], [0.2, 2], [4, 1.3], [1.1, 5], [-3, 1.1], [10, -9]])
V = np.array(
    [
        [0.9, -0.4, 0.3, 1.2, -0.7, 0.2, 0.5, -0.3, 0.8, -0.6],
        [1.1, -0.5, 0.1, 0.8, -0.9, 0.4, 0.3, -0.1, 0.6, -0.2],
        [0.7, 0.2, 0.6, 1.0, -0.3, -0.1, 0.2, 0.4, 0.9, 0.3],
        [0.6, -0.8, 0.5, 0.4, -1.2, -0.6, 0.7, -0.5, -0.1, -0.4],
        [-2.0, 1.5, 0.7, -1.8, 0.6, 1.1, -0.9, 0.8, -1.3, 1.0],
        [3.0, -2.1, 1.4, 2.6, -1.7, 0.9, 1.6, -1.2, 2.2, -1.5],
    ]
)
W10 = np.array([0.5, -0.2, 0.1, 0.3, -0.4, 0.6, 0, 0.2, -0.1, 0.4])
S = np.array([[1, -2, 0, 3], [2, 1, -1, 0], [-1, 2, 2, 1], [3, -1, 1, -2], [0.5, 0, -3, 1]])


def sign(value):
    """-1, 0 or 1."""
    return int(value > 0) - int(value < 0)


def mean(rows):
    """Of some rows."""
    return sum(np.asarray(row, np.float64) for row in rows) / len(rows)


def first_of(values, k):
    """Numbers of the k smallest values, the first of equal ones."""
    return sorted(sorted(range(len(values)), key=lambda i: (values[i], i))[:k])


def nearest(x, anchor, f):
    """Numbers of the n - f rows nearest to a point."""
    return first_of([length(row - anchor) for row in x], len(x) - f)


def shortest(x, f):
    """Numbers of the n - f shortest rows."""
    return first_of([length(row) for row in x], len(x) - f)


def robust_learning_rate(x, answer, threshold):
    """The answer, turned where fewer signs than the threshold are left over."""
    votes = [abs(sum(sign(row[k]) for row in x)) for k in range(len(answer))]
    return np.array([a if vote >= threshold else -a for a, vote in zip(answer, votes, strict=True)])


def median(values, kind="middle"):
    """Mean of the middle two of an even number, or the lower one."""
    return float(sorted(values)[(len(values) - 1) // 2]) if kind == "lower" else float(middle(values))


def z_scores(values):
    """|v - median| / std over n; 0 where there is no deviation."""
    centre, mu = median(values), sum(values) / len(values)
    std = np.sqrt(sum((value - mu) ** 2 for value in values) / len(values))
    flat = std <= 1e-12 * max(abs(value) for value in values)
    return [0.0 if flat else abs(value - centre) / std for value in values]


def passing(scores, limit):
    """Strictly below, rounding aside."""
    return [score < limit * (1 - 1e-9) for score in scores]


def alignins(x, w, lambda_c=1.0, lambda_s=1.0, sparsity=0.3, kind="middle", weights=None):
    """The result, and what leads to it."""
    n, d = x.shape
    alpha = [1.0] * n if weights is None else list(weights)
    p = [sign(sum(sign(row[j]) for row in x)) for j in range(d)]
    k = max(int(sparsity * d), 1)
    tda, mpsa = [], []
    for row in x:
        tda.append(float(row @ w) / max(length(row) * length(w), 1e-6))
        largest = sorted(range(d), key=lambda j: (-abs(row[j]), j))[:k]
        mpsa.append(sum(sign(row[j]) == p[j] for j in largest) / k)
    both = zip(passing(z_scores(tda), lambda_c), passing(z_scores(mpsa), lambda_s), strict=True)
    kept = [i for i, (a, b) in enumerate(both) if a and b]
    found = {"p": p, "k": k, "tda": tda, "mpsa": mpsa, "kept": kept}
    if not kept:
        return np.zeros(d), found
    c = median([length(x[i]) for i in kept], kind)
    share = sum(alpha[i] for i in kept)
    return sum(alpha[i] / share * clip(x[i], c) for i in kept), found | {"c": c}


def lasa(x, layout, lambda_n=1.0, lambda_s=1.0, sparsity=0.3, aggregate="sparse", kind="middle"):
    """The result and who is used; the layout is pairs of columns and number of dimensions."""
    c = median([length(row) for row in x], kind)
    clipped = [clip(row, c) for row in x]
    large = [j for columns, dimensions in layout if dimensions > 1 for j in columns]
    sparse = []
    for row in clipped:
        row = row.copy()
        if sparsity and large:
            limit = sorted((abs(row[j]) for j in large), reverse=True)[int((1 - sparsity) * len(large)) - 1]
            for j in large:
                if abs(row[j]) <= limit:
                    row[j] = 0
        sparse.append(row)
    result, used = np.zeros(x.shape[1]), []
    for columns, _ in layout:
        norms = [length(row[list(columns)]) for row in sparse]
        purity = []
        for row in sparse:
            signs = [sign(row[j]) for j in columns]
            purity.append(sum(signs) / max(sum(map(abs, signs)), 1))
        both = zip(passing(z_scores(norms), lambda_n), passing(z_scores(purity), lambda_s), strict=True)
        rows = [i for i, (a, b) in enumerate(both) if a and b] or list(range(len(x)))
        used.append(rows)
        for j in columns:
            result[j] = sum((sparse if aggregate == "sparse" else clipped)[i][j] for i in rows) / len(rows)
    return result, used


def fedseca(x, gamma=0.9, variant="code", kind="middle"):
    """The r and rho of a round."""
    n, d = x.shape
    rho = []
    for a in x:
        agree = [sign(sum(sign(p) * sign(q) for p, q in zip(a, b, strict=True))) for b in x]
        rho.append(max(0.0, sum(agree) / n))
    c = median([length(row) for row in x], kind)
    clipped = np.array([clip(row, c) for row in x])
    r = np.zeros(d)
    cuts = []
    for row in x:
        sizes, place = sorted(abs(row)), gamma * (d - 1)
        low = int(place)
        high = min(low + 1, d - 1)
        cuts.append(sizes[low] + (place - low) * (sizes[high] - sizes[low]))
    for j in range(d):
        mu = median([abs(value) for value in clipped[:, j]], kind)
        y = []
        for i in range(n):
            value = min(max((clipped if variant == "paper" else x)[i][j], -mu), mu)
            size = abs(x[i][j])
            out = size <= cuts[i] * (1 + 1e-12) if variant == "paper" else size < cuts[i] * (1 - 1e-12)
            y.append(0.0 if out else value)
        votes = sum(rho[i] * sign(x[i][j] if variant == "paper" else y[i]) for i in range(n))
        elected = 0 if abs(votes) <= 1e-12 else sign(votes)
        same = [value for value in y if value * elected > 0]
        r[j] = sum(same) / len(same) if same else 0.0
    return r, np.array(rho)


def huber(x, radii, weights, steps=200_000):
    """The fixed point from the coordinate-wise median."""
    c = np.array([median(column) for column in x.T])
    for _ in range(steps):
        b = [a * min(1.0, t / max(length(c - row), 1e-300)) for a, t, row in zip(weights, radii, x, strict=True)]
        new = sum(share * row for share, row in zip(b, x, strict=True)) / sum(b)
        if length(new - c) <= 1e-13 * max(1.0, length(c)):
            break
        c = new
    return c


def bfgs_product(moves, changes, v):
    """The Hessian by BFGS from sigma I, a d x d matrix, updated pair by pair, times v; also sigma."""
    sigma = float(moves[-1] @ changes[-1]) / float(moves[-1] @ moves[-1])
    b = sigma * np.eye(len(v))
    for s, y in zip(moves, changes, strict=True):
        b = b - np.outer(b @ s, b @ s) / (s @ b @ s) + np.outer(y, y) / (y @ s)
    return b @ v, sigma


def scatter(values, k):
    """Least sum of squared distances to k centres, over all ways to cut the sorted numbers into k runs."""
    from itertools import combinations

    values, best = sorted(values), np.inf
    for cuts in combinations(range(1, len(values)), k - 1):
        runs = np.split(np.array(values), cuts)
        best = min(best, sum(float(((run - run.mean()) ** 2).sum()) for run in runs))
    return best


def gap_statistics(scores, references, most):
    """The number of clusters, and W, gap and s by k."""
    q = [(score - min(scores)) / (max(scores) - min(scores)) for score in scores]
    w = [scatter(q, k) for k in range(1, most + 1)]
    drawn = [[scatter(row, k) for row in references] for k in range(1, most + 1)]
    gap = [np.log(np.mean(of_k)) - np.log(own) for of_k, own in zip(drawn, w, strict=True)]
    s = [np.std(np.log(of_k)) * np.sqrt(1 + 1 / len(references)) for of_k in drawn]
    for k in range(1, most):
        if gap[k - 1] - gap[k] + s[k] >= 0:
            return k, w, gap, s
    return most, w, gap, s


def delayed_momenta(rounds, n, alpha, p, absent="decay", start="zero"):
    """The (n, d) momenta after each round; a round maps clients to rows."""
    d = len(next(iter(rounds[0].values())))
    momenta, seen, found = np.zeros((n, d)), set(), []
    for sent in rounds:
        for i in range(n):
            if i in sent and start == "first" and i not in seen:
                momenta[i] = sent[i]
            elif absent == "decay":
                momenta[i] = (1 - alpha * p) * momenta[i] + (alpha * np.array(sent[i]) if i in sent else 0)
            elif i in sent:
                momenta[i] = (1 - alpha) * momenta[i] + alpha * np.array(sent[i])
        seen |= set(sent)
        found.append(momenta.copy())
    return found


def clipped_by_step(rounds, rate, factor, rule):
    """L, g and w of each round, of a plain server that starts at 0."""
    w = np.zeros(rounds[0].shape[1])
    before, g, limit, found = None, None, None, []
    for x in rounds:
        if g is None:
            g = rule(x)
        else:
            limit = factor * length(w - before) or limit
            g = g + rule(np.array([clip(row - g, limit) for row in x]))
        before, w = w, w - rate * g
        found.append((limit, g, w))
    return found


def masked_momenta(rounds, masks, beta):
    """The momenta of each round's rows."""
    momenta, found = np.zeros_like(rounds[0]), []
    for x, mask in zip(rounds, masks, strict=True):
        sparse = np.zeros_like(x)
        for j in mask:
            sparse[:, j] = x.shape[1] / len(mask) * x[:, j]
        momenta = beta * momenta + (1 - beta) * sparse
        found.append(momenta)
    return found
