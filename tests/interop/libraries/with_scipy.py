"""SciPy in ordinary use: NumPy's arrays go in, NumPy's arrays come out."""

import io
import sys

import numpy as np
from scipy import (
    fft,
    integrate,
    interpolate,
    linalg,
    ndimage,
    optimize,
    signal,
    sparse,
    spatial,
    special,
    stats,
)
from scipy.io import loadmat, mmread, mmwrite, savemat, wavfile

SIZES = (60, 20_000)


def show(name, *values):
    texts = [np.array2string(np.asarray(x), precision=6, threshold=8) for x in values]
    print(name, *texts)


def optimize_and_fit(n):
    t = np.linspace(0, 4, n)
    data = 2.5 * np.exp(-1.3 * t) + 0.5 + 0.01 * np.sin(50 * t)

    def model(t, a, b, c):
        return a * np.exp(-b * t) + c

    def residuals(p):
        return model(t, *p) - data

    fitted, covariance = optimize.curve_fit(model, t, data)
    show("curve_fit", fitted, np.sqrt(np.diag(covariance)) < 0.1)
    show("least_squares", optimize.least_squares(residuals, np.ones(3)).x)

    def cost(p):
        return (residuals(p) ** 2).sum()

    def gradient(p):
        e = np.exp(-p[1] * t)
        r = 2 * residuals(p)
        return np.array([(r * e).sum(), (-r * p[0] * t * e).sum(), r.sum()])

    for method in ("BFGS", "L-BFGS-B", "TNC", "trust-constr"):
        show(method, optimize.minimize(cost, np.ones(3), jac=gradient, method=method).x.round(2))
    show("Nelder-Mead", optimize.minimize(cost, [2, 1, 0], method="Nelder-Mead").x.round(2))

    def spread(x):
        return ((x - np.arange(x.size)) ** 2).sum()

    found = optimize.minimize(spread, np.zeros(8), method="SLSQP", bounds=[(0, 5)] * 8)
    show("SLSQP", found.x.round(3))
    found = optimize.minimize(
        lambda x, centre: ((x - centre) ** 2).sum(), np.zeros(3), args=(t[:3],)
    )
    show("args", found.x.round(4))

    def chain(x):
        return x**2 - np.roll(x, 1) - 1

    show("root", optimize.root(chain, np.ones(8)).x.round(6))
    matrix = np.eye(5) + 0.25
    show("linprog", optimize.linprog(-np.ones(5), A_ub=matrix, b_ub=np.ones(5)).x)
    rows, columns = optimize.linear_sum_assignment(np.add.outer(np.arange(5), np.arange(5)) % 3)
    show("assignment", rows, columns)
    show("brentq", optimize.brentq(lambda x: np.cos(x) - x, 0, 1))
    show("nnls", optimize.nnls(np.vander(t[:40], 3), data[:40])[0].round(4))


def integrate_and_interpolate(n):
    x = np.linspace(0, 10, n)
    y = np.sin(x) + 0.1 * x
    show("simpson", integrate.simpson(y, x=x), integrate.trapezoid(y, x))
    show("cumulative", integrate.cumulative_trapezoid(y, x, initial=0)[:: n // 4])
    show("quad", integrate.quad(lambda s: np.exp(-(s**2)), 0, np.inf)[0])
    show("quad_vec", integrate.quad_vec(lambda s: np.cos(np.arange(4) * s), 0, 1)[0])

    rates = np.linspace(0.1, 2, n)

    def decay(t, state):
        return -rates * state

    solved = integrate.solve_ivp(decay, (0, 1), np.ones(n), t_eval=[0.5, 1.0], rtol=1e-6)
    show("solve_ivp", solved.y[:: n // 3], solved.success)
    show("odeint", integrate.odeint(lambda s, t: -s * np.arange(3), np.ones(3), x[: n // 10])[-1])

    at = (np.arange(n) + 0.5) * 9.9 / n
    for make in (interpolate.CubicSpline, interpolate.PchipInterpolator):
        show(make.__name__, make(x, y)(at)[:: n // 4])
    show("interp1d", interpolate.interp1d(x, y, kind="linear")(at)[:: n // 4])
    show("smooth", interpolate.make_splrep(x, y, w=np.ones(n), s=0.01)(at)[:: n // 4].round(3))
    show("splrep", interpolate.splev(at[:5], interpolate.splrep(x, y)))
    show("make_interp", interpolate.make_interp_spline(x, y, k=3).derivative()(at)[:: n // 4])
    grid = interpolate.RegularGridInterpolator(
        (np.arange(30.0), np.arange(40.0)), np.outer(np.arange(30), np.arange(40.0))
    )
    show("grid", grid(np.stack([at * 2, at * 3], axis=-1))[:: n // 4])
    points = np.random.default_rng(1).random((60, 2))
    inside = np.full((3, 2), 0.5) + np.arange(3)[:, None] * 0.05
    show("griddata", interpolate.griddata(points, points.sum(axis=1), inside))
    show("rbf", interpolate.RBFInterpolator(points, points[:, 0] ** 2)(inside))


def signals_and_transforms(n):
    t = np.arange(n) / 100
    x = np.sin(2 * np.pi * 5 * t) + 0.5 * np.cos(2 * np.pi * 20 * t)
    b, a = signal.butter(4, 0.2)
    for name, y in (
        ("lfilter", signal.lfilter(b, a, x)),
        ("filtfilt", signal.filtfilt(b, a, x)),
        ("sosfilt", signal.sosfilt(signal.butter(4, 0.2, output="sos"), x)),
        ("savgol", signal.savgol_filter(x, 7, 2)),
        ("hilbert", np.abs(signal.hilbert(x))),
        ("fftconvolve", signal.fftconvolve(x, np.hanning(9), mode="same")),
        ("medfilt", signal.medfilt(x, 5)),
        ("resample", signal.resample_poly(x, 2, 3)),
        ("detrend", signal.detrend(x + t)),
    ):
        show(name, y.shape, y[:: len(y) // 4].round(5), y.std())
    peaks, found = signal.find_peaks(x, height=0.5, prominence=0.2)
    show("peaks", len(peaks), peaks[:5], found["peak_heights"][:5])
    frequencies, power = signal.welch(x, fs=100, nperseg=min(n, 256))
    show("welch", frequencies[np.argmax(power)])
    show("spectrogram", signal.spectrogram(x, nperseg=32)[2].sum())
    show("windows", signal.get_window("hann", 8), signal.convolve(np.ones(3), np.arange(3)))

    spectrum = fft.rfft(x)
    show("rfft", np.abs(spectrum)[:4].round(6), np.allclose(fft.irfft(spectrum, n), x))
    show("fft2", np.abs(fft.fft2(x[: n // 10 * 10].reshape(10, -1))).sum())
    show("dct", fft.dct(x, norm="ortho")[:4].round(6), fft.next_fast_len(n), fft.fftfreq(5))
    show("fftshift", fft.fftshift(fft.fftfreq(n))[:3])


def images(n):
    side = int(n**0.5)
    image = np.add.outer(np.arange(side), np.arange(side)) % 17 * 1.0
    for name, y in (
        ("gaussian", ndimage.gaussian_filter(image, 1.5)),
        ("sobel", ndimage.sobel(image)),
        ("median", ndimage.median_filter(image, 3)),
        ("rotate", ndimage.rotate(image, 30, reshape=False)),
        ("zoom", ndimage.zoom(image, 0.5)),
        ("shift", ndimage.shift(image, 1.5)),
        ("convolve", ndimage.convolve(image, np.ones((3, 3)) / 9)),
        ("distance", ndimage.distance_transform_edt(image > 3)),
    ):
        show(name, y.shape, y.sum().round(3))
    labels, count = ndimage.label(image > 8)
    show("label", count, ndimage.sum_labels(image, labels, np.arange(1, 4)))
    show("centre", ndimage.center_of_mass(image), ndimage.find_objects(labels)[0][0].stop)
    where = np.mgrid[0:side, 0:side] * 0.5
    show("map_coordinates", ndimage.map_coordinates(image, where, order=1).sum())
    target = np.zeros_like(image)
    ndimage.uniform_filter(image, 3, output=target)
    show("output", target.sum().round(4))


def matrices(n):
    rng = np.random.default_rng(3)
    rows = max(8, n // 150)
    a = rng.random((rows, rows)) + rows * np.eye(rows)
    b = a[:, 0] + 1
    show("solve", linalg.solve(a, b).sum(), linalg.det(a / rows), linalg.norm(a))
    lower = linalg.cholesky(a @ a.T, lower=True)
    show("cholesky", np.allclose(lower @ lower.T, a @ a.T))
    p, low, up = linalg.lu(a)
    show("lu", np.allclose(p @ low @ up, a), linalg.lu_solve(linalg.lu_factor(a), b).sum())
    q, r = linalg.qr(a)
    u, s, v = linalg.svd(a, full_matrices=False)
    show("qr svd", np.allclose(q @ r, a), np.allclose((u * s) @ v, a), s[:3])
    show("eigh", linalg.eigh(a + a.T, eigvals_only=True)[:3], linalg.inv(a)[0, :2])
    show("expm", linalg.expm(a[:4, :4] / rows), linalg.toeplitz(np.arange(3)))
    show("blas", linalg.blas.ddot(b, b), linalg.blas.dgemm(1.0, a[:2, :2], a[:2, :2]))

    values = np.arange(1.0, n + 1)
    index = (np.arange(n) * 7) % n
    grid = sparse.coo_array((values, (np.arange(n), index)), shape=(n, n)).tocsr()
    x = np.ones(n)
    show("csr", (grid @ x)[:4], (x @ grid).sum(), grid.sum(axis=0)[:3], grid.nnz)
    show("csr data", grid.data[:4], (grid * 2).data.sum(), grid[2:4].toarray().shape)
    band = sparse.diags_array([-np.ones(n - 1), 4 * x, -np.ones(n - 1)], offsets=[-1, 0, 1])
    show("spsolve", sparse.linalg.spsolve(band.tocsc(), x)[:4])
    solution, status = sparse.linalg.cg(band.tocsr(), x, rtol=1e-10)
    show("cg", solution[:4], status)

    def times(v):
        return 2 * v + np.roll(v, 1)

    show("operator", sparse.linalg.aslinearoperator(np.eye(4) * 2).matvec(np.arange(4)))
    operator = sparse.linalg.LinearOperator((n, n), matvec=times, dtype=float)
    show("gmres", sparse.linalg.gmres(operator, x, rtol=1e-8)[0][:3])
    show("eigsh", sparse.linalg.eigsh(band.tocsr()[:40, :40], k=2, v0=x[:40])[0])
    show("dense", sparse.csr_array(np.eye(3)).toarray(), sparse.eye_array(2).todense())
    count, group = sparse.csgraph.connected_components(grid)
    show("csgraph", count > 0, group[:3])
    distances = sparse.csgraph.dijkstra(band.tocsr()[:30, :30] ** 2, indices=0)
    show("dijkstra", distances[:4])


def statistics(n):
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=n), rng.normal(0.5, 2, size=n)
    show("describe", *stats.describe(x)[2:])
    for name, result in (
        ("ttest", stats.ttest_ind(x, y)),
        ("ks", stats.kstest(x, "norm")),
        ("mannwhitney", stats.mannwhitneyu(x, y)),
        ("pearson", stats.pearsonr(x, y)),
        ("spearman", stats.spearmanr(x, y)),
        ("linregress", stats.linregress(x, x * 2 + y)[:2]),
        ("shapiro", stats.shapiro(x[:50])),
    ):
        show(name, *result[:2])
    show("norm", stats.norm.cdf(x)[:4], stats.norm.fit(x), stats.gamma(2.0).pdf(np.abs(x))[:3])
    show("rvs", stats.norm.rvs(size=3, random_state=np.random.default_rng(1)))
    show("kde", stats.gaussian_kde(x[:200])(np.linspace(-1, 1, 4)))
    show("binned", stats.binned_statistic(x, y, bins=4).statistic.round(4))
    show("zscore", stats.zscore(y)[:3], stats.rankdata(x)[:4], stats.iqr(x), stats.mode([1, 1, 2]))
    show("entropy", stats.entropy(np.abs(x) / np.abs(x).sum()), stats.trim_mean(x, 0.1))
    show("special", special.erf(x)[:4], special.logsumexp(x), special.softmax(x)[:2])
    show("gamma", special.gammaln(np.abs(x) + 1)[:3], special.jv(1, y)[:3], special.comb(10, 3))
    show("expit", special.expit(x, out=np.empty(n))[:3], special.xlogy(x * x, 2.0)[:3])


def neighbours(n):
    points = np.random.default_rng(7).random((n, 2))
    tree = spatial.KDTree(points)
    distance, index = tree.query(points[:5] + 0.001, k=2)
    show("tree", distance, index, len(tree.query_ball_point(points[0], 0.1)))
    show("tree data", np.array_equal(tree.data, points))
    some = points[:60]
    show("pdist", spatial.distance.pdist(some)[:4], spatial.distance.cdist(some, some).sum())
    show("hull", spatial.ConvexHull(some).volume, spatial.Delaunay(some).simplices.shape)
    turn = spatial.transform.Rotation.from_euler("z", 90, degrees=True)
    show("rotation", turn.apply(np.eye(3)).round(6), turn.as_quat())
    show("cosine", spatial.distance.cosine(points[:, 0], points[:, 1]))
    target = np.empty((60, 5))
    spatial.distance.cdist(some, points[:5], "cosine", out=target)
    show("out", target.sum())


def files(n):
    stream = io.BytesIO()
    savemat(stream, {"x": np.arange(n) * 0.5, "names": np.array(["a", "b"], dtype=object)})
    stored = loadmat(stream)
    show("loadmat", stored["x"].shape, stored["x"].sum(), [str(x[0]) for x in stored["names"][0]])
    stream = io.BytesIO()
    wavfile.write(stream, 8000, (np.sin(np.arange(n) / 10) * 10000).astype(np.int16))
    rate, sound = wavfile.read(stream)
    show("wavfile", rate, sound.dtype, sound[:5])
    stream = io.BytesIO()
    mmwrite(stream, np.arange(6.0).reshape(2, 3))
    show("mmread", mmread(io.BytesIO(stream.getvalue())))


def main():
    for n in map(int, sys.argv[1:] or SIZES):
        print(f"--- {n} elements")
        optimize_and_fit(n)
        integrate_and_interpolate(n)
        signals_and_transforms(n)
        images(n)
        matrices(n)
        statistics(n)
        neighbours(n)
        files(n)


if __name__ == "__main__":
    main()
