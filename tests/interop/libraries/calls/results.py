"""Calls of packages that compute with arrays, draw them, and store them."""

from __future__ import annotations

from tests.interop.libraries.calls.package import Package

PACKAGES = (
    Package(
        "statsmodels",
        "statsmodels",
        "0.15",
        """
import statsmodels.api as sm
import statsmodels.formula.api as smf
t = np.arange(40.0)
x = np.sin(t)
y = 2 + 3 * x + np.cos(7 * t) / 5
design = sm.add_constant(x)
""",
        """
sm.add_constant(x)
sm.OLS(y, design).fit().params
sm.OLS(y, design).fit().bse
sm.OLS(y, sm.add_constant(np.stack([x, t], axis=1))).fit().rsquared
sm.WLS(y, design, weights=1 + t).fit().params
sm.GLM(np.abs(y), design).fit().params
sm.Logit((y > 2).astype(float), sm.add_constant(np.cos(3 * t))).fit(disp=0).params
sm.RLM(y, design).fit().params
smf.ols("y ~ x", {"x": x, "y": y}).fit().params.tolist()
sm.OLS(y, design).fit().predict(design[:5])
sm.OLS(y, design).fit().t_test([0, 1]).tvalue
sm.tsa.acf(y, nlags=5)
sm.tsa.ARIMA(y, order=(1, 0, 0)).fit().params.round(3)
sm.nonparametric.lowess(y, t, frac=0.5)
sm.nonparametric.KDEUnivariate(y).fit() and None
sm.stats.durbin_watson(y)
sm.stats.DescrStatsW(y, weights=1 + t).mean
sm.distributions.ECDF(y)(x)
sm.OLS(y[:3], design)
""",
    ),
    Package(
        "skimage",
        "scikit-image",
        "0.26",
        """
from skimage import color, draw, exposure, feature, filters, measure, morphology
from skimage import restoration, segmentation, transform, util
y, x = np.mgrid[0:24, 0:32]
grey = ((x * 7 + y * 5) % 256).astype(np.uint8)
field = grey / 255.0
image = np.stack([field, field[::-1], 1 - field], axis=2)
spots = (np.sin(x * 0.7) * np.cos(y * 0.6)) > 0.4
""",
        """
filters.gaussian(field, 1.5)
filters.sobel(field)
filters.threshold_otsu(grey)
filters.median(grey, np.ones((3, 3)))
color.rgb2gray(image)
color.rgb2lab(image)
transform.resize(field, (12, 16))
transform.rotate(field, 30)
transform.warp(field, np.array([[1, 0.1, 2], [0, 1, 1], [0, 0, 1.0]]))
transform.AffineTransform(np.array([[1, 0.1, 2], [0, 1, 1], [0, 0, 1.0]])).inverse(x[:, :2])
measure.label(spots)
[each.area for each in measure.regionprops(measure.label(spots), field)]
measure.find_contours(field, 0.5)[0]
morphology.dilation(grey, morphology.disk(2))
morphology.remove_small_objects(spots, max_size=4)
morphology.skeletonize(spots)
feature.canny(field)
feature.peak_local_max(field, min_distance=3)
feature.hog(field, pixels_per_cell=(8, 8), cells_per_block=(1, 1))
exposure.equalize_hist(field)
exposure.histogram(grey)[0]
segmentation.slic(image, n_segments=6)
segmentation.watershed(-field, measure.label(spots))
restoration.denoise_tv_chambolle(field)
util.img_as_ubyte(field)
draw.polygon(np.array([1, 8, 4]), np.array([1, 2, 9]))
filters.gaussian(np.zeros((0, 3)), 1.0).shape
""",
    ),
    Package(
        "seaborn",
        "seaborn",
        "0.13",
        """
import matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
import seaborn
x = np.sin(np.arange(30.0))
y = x * 2 + np.arange(30.0) % 3
keys = np.arange(30) % 3
def drawn(axes):
    figure = axes.figure
    figure.canvas.draw()
    pixels = bytes(figure.canvas.buffer_rgba())
    plt.close("all")
    return pixels
""",
        """
drawn(seaborn.scatterplot(x=x, y=y, hue=keys))
drawn(seaborn.lineplot(x=x, y=y, errorbar=None))
drawn(seaborn.histplot(x, bins=5))
drawn(seaborn.histplot(x=x, y=y, bins=np.linspace(-2, 2, 5)))
drawn(seaborn.kdeplot(x))
drawn(seaborn.boxplot(x=keys, y=y))
drawn(seaborn.violinplot(x=keys, y=y))
drawn(seaborn.heatmap(x.reshape(5, 6), annot=True))
drawn(seaborn.regplot(x=x, y=y, ci=None))
drawn(seaborn.barplot(x=keys, y=y, errorbar=None))
drawn(seaborn.ecdfplot(x))
drawn(seaborn.heatmap(x.reshape(5, 6), mask=x.reshape(5, 6) > 0))
""",
    ),
    Package(
        "plotly",
        "plotly",
        "7.1",
        """
import plotly.express as px
import plotly.graph_objects as go
import plotly.io as pio
x = np.arange(6.0)
grid = np.arange(12.0).reshape(3, 4)
""",
        """
go.Scatter(x=x, y=x ** 2).to_plotly_json()["y"]
go.Figure(go.Scatter(x=x, y=np.sin(x))).to_json()
go.Figure(go.Heatmap(z=grid)).to_json()
go.Figure(go.Surface(z=grid, x=np.arange(4), y=np.arange(3))).to_json()
go.Figure(go.Bar(x=["a", "b"], y=np.array([1, 2]))).to_json()
go.Figure(go.Scatter(x=x, y=x, marker={"size": x, "color": x > 2})).to_json()
px.scatter(x=x, y=x ** 2, color=np.array(list("aabbcc"))).to_json()
px.line(y=x).to_json()
px.imshow(grid).to_json()
px.histogram(x=x, nbins=3).to_json()
go.Figure(layout={"xaxis": {"range": [x.min(), x.max()]}}).to_json()
go.Figure(layout={"title": {"text": f"{x.mean():.2f}"}}).to_json()
pio.to_json(go.Figure(go.Contour(z=grid, contours={"start": grid.min(), "end": grid.max()})))
""",
    ),
    Package(
        "tifffile",
        "tifffile",
        "2026.3",
        """
import io
import tifffile
grey = (np.arange(48).reshape(6, 8) * 5).astype(np.uint8)
def written(value, **more):
    file = io.BytesIO()
    tifffile.imwrite(file, value, **more)
    return file
""",
        """
tifffile.imread(written(grey))
tifffile.imread(written(grey.astype(np.float32) / 3))
tifffile.imread(written(grey[:, ::2]))
tifffile.imread(written(grey.T))
tifffile.imread(written(np.stack([grey, grey, grey], axis=2), photometric="rgb"))
tifffile.imread(written(np.stack([grey, grey]), photometric="minisblack"))
tifffile.imread(written(grey > 90))
tifffile.imread(written(grey, compression="zlib"))
tifffile.imread(written(grey, tile=(16, 16)))
tifffile.imread(written(grey, metadata={"mean": float(grey.mean())}))
tifffile.TiffFile(written(grey)).pages[0].asarray(out=np.zeros_like(grey))
written(grey).getvalue()[-48:]
written(grey.astype(str))
""",
    ),
    Package(
        "numexpr",
        "numexpr",
        "2.14",
        """
import numexpr
a, b = np.arange(5.0), np.arange(5.0) * 2
target = np.zeros(5)
""",
        """
numexpr.evaluate("a * b + 1")
numexpr.evaluate("sum(a)")
numexpr.evaluate("a > 2")
numexpr.evaluate("a + c", {"a": a, "c": a[1]})
numexpr.evaluate("a * 2", out=target), target.tolist()
numexpr.evaluate("where(a > b, a, b)")
numexpr.evaluate("a[0]")
""",
    ),
    Package(
        "gymnasium",
        "gymnasium",
        "1.4",
        """
import gymnasium
from gymnasium import spaces
low, high = np.zeros(3, dtype=np.float32), np.ones(3, dtype=np.float32)
box = spaces.Box(low, high)
""",
        """
spaces.Box(low, high)
spaces.Box(low, high).contains(low)
box.contains(low + 0.5)
box.contains(low + 2)
(low + 0.5) in box
spaces.Discrete(3).contains(np.arange(3)[1])
spaces.Discrete(3).contains(np.arange(3).sum())
spaces.MultiDiscrete(np.array([3, 4])).contains(np.array([1, 2]))
spaces.MultiBinary(3).contains(np.array([0, 1, 1], dtype=np.int8))
spaces.Dict(a=box).contains({"a": low})
spaces.Tuple([box, box]).contains((low, high))
spaces.utils.flatten(spaces.Dict(a=box, b=box), {"a": low, "b": high})
spaces.utils.unflatten(spaces.Tuple([box, box]), np.arange(6.0))
box.to_jsonable([low, high])
spaces.Discrete(3).sample(mask=np.array([0, 1, 0], dtype=np.int8))
spaces.Box(low, high, dtype=np.float64)
spaces.Box(0.0, 1.0, (2,), dtype=np.float32).contains(np.ones(2, dtype=np.float32))
gymnasium.vector.utils.concatenate(box, (low, high), np.zeros((2, 3), dtype=np.float32))
gymnasium.vector.utils.batch_space(box, 2).contains(np.stack([low, high]))
""",
    ),
)
