"""Calls of packages that have arrays of their own."""

from __future__ import annotations

from tests.interop.libraries.calls.package import Package

PACKAGES = (
    Package(
        "jax",
        "JAX",
        "0.10",
        """
import jax
import jax.numpy as jnp
x = np.arange(6, dtype=np.float32)
square = np.arange(9, dtype=np.float32).reshape(3, 3)
d = jnp.arange(6, dtype=jnp.float32)
""",
        """
jnp.asarray(x).tolist()
jnp.array(square).tolist()
(d + x).tolist()
(x + d).tolist()
(d * x.sum()).tolist()
jnp.sin(x).tolist()
jnp.dot(d, x).item()
(d @ x).item()
jax.jit(lambda v: v * 2)(x).tolist()
jax.grad(lambda v: (v ** 2).sum())(x).tolist()
jax.vmap(lambda v: v.sum())(square).tolist()
jax.device_put(x).tolist()
jax.tree.map(lambda v: v + 1, {"a": x})["a"].tolist()
np.asarray(d)
np.sum(np.asarray(d) * x)
d[np.array([1, 2])].tolist()
d[x > 3].tolist()
d.at[np.array([0, 1])].set(x[:2] * 9).tolist()
jnp.where(x > 2, x, 0).tolist()
jnp.concatenate([d, x]).tolist()
jnp.stack([x, x]).tolist()
jnp.linalg.norm(square).item()
jax.lax.scan(lambda c, v: (c + v, c), x[0], x)[1].tolist()
jnp.full(3, x.max()).tolist()
jnp.from_dlpack(x).tolist()
jnp.asarray(np.array(["a"]))
""",
    ),
    Package(
        "torch",
        "PyTorch",
        "2.13",
        """
import torch
x = np.arange(6.0)
square = np.arange(9.0).reshape(3, 3)
shared = np.zeros(4)
""",
        """
torch.from_numpy(x).tolist()
torch.tensor(x).tolist()
torch.as_tensor(x).tolist()
torch.asarray(x).tolist()
torch.from_dlpack(x).tolist()
torch.from_numpy(shared).fill_(3).sum().item(), shared.tolist()
torch.as_tensor(shared).add_(1).sum().item(), shared.tolist()
torch.from_numpy(square[:, 1]).tolist()
torch.tensor([x, x]).shape
torch.tensor(x.sum()).item()
torch.tensor([x.sum(), x.max()]).tolist()
torch.ones(6).numpy() + x
x + torch.ones(6).numpy()
np.asarray(torch.ones(3))
np.from_dlpack(torch.ones(3))
np.sum(torch.ones(3).numpy())
torch.tensor(x, dtype=torch.float32).dtype
torch.tensor(square) @ torch.tensor(square)
torch.zeros(6)[torch.as_tensor(x > 2)].shape
torch.utils.data.TensorDataset(torch.from_numpy(x))[1]
torch.utils.data.default_collate([x, x]).shape
torch.ones(6, dtype=torch.float64) * torch.as_tensor(x)
torch.ones(6, dtype=torch.float64) * x
torch.full((2,), x.max())
torch.from_numpy(x.astype(str))
""",
    ),
    Package(
        "astropy",
        "astropy",
        "8.0",
        """
import astropy.units as u
from astropy.table import Table
from astropy.time import Time
from astropy.coordinates import SkyCoord
x = np.arange(5.0) + 1
q = x * u.m
r = [1.0, 2.0, 3.0, 4.0, 5.0] * u.s
""",
        """
x * u.m
u.m * x
x / u.s
u.Quantity(x, u.km)
x << u.m
q * x
x * q
q / x
x / q
r * x
x * r
r + x * u.s
r ** x.max()
q[x > 2]
q.to(u.km)
np.sqrt(q)
np.sum(q)
np.mean(r)
np.concatenate([q, q])
x * (3 * u.m)
(3 * u.m) * x
q.to_value(u.cm)
r + x
np.sin(x * u.rad)
Table({"x": x, "k": x > 2})["x"]
Time(2451545.0 + x, format="jd").iso
SkyCoord(x * u.deg, x * u.deg).ra.deg
u.Quantity([x[0], x[1]], u.m)
x.sum() * u.m
u.m * x.sum()
q @ x
r == x * u.s
""",
    ),
    Package(
        "dask",
        "dask",
        "2026.8",
        """
import dask.array as da
x = np.arange(12.0)
d = da.arange(12.0, chunks=4)
""",
        """
(d + x).compute()
(x + d).compute()
(d * x.sum()).compute()
da.from_array(x, chunks=3).sum().compute()
da.asarray(x).mean().compute()
d[x > 3].compute()
d[np.array([1, 2])].compute()
da.dot(d, x).compute()
np.sin(d).compute()
np.sum(d).compute()
da.where(d > 3, x, 0).compute()
da.map_blocks(lambda b: np.asarray(b) * 2, d).compute()
da.concatenate([d, x]).compute()
da.stack([x, x]).compute()
(d > x).compute()
da.map_blocks(lambda b: np.exp(b), da.from_array(x, chunks=3)).compute()
d.map_blocks(lambda b, c: b + c, x[:4]).compute()
(d @ x).compute()
(d + x[:5]).compute()
""",
    ),
    Package(
        "pint",
        "Pint",
        "0.25",
        """
import pint
u = pint.UnitRegistry()
x = np.arange(4.0) + 1
q = u.Quantity(x, "m")
r = u.Quantity([1.0, 2.0, 3.0, 4.0], "s")
""",
        """
(x * u.m).magnitude
(u.m * x).magnitude
(x / u.s).units
u.Quantity(x, "km").to("m").magnitude
(q * x).magnitude
(x * q).magnitude
(q / r).magnitude
(q + q).to("cm").magnitude
(r * x).magnitude
(x * r).magnitude
np.sqrt(q).magnitude
np.sum(q).magnitude
np.mean(r).magnitude
np.concatenate([q, q]).magnitude
np.sin(u.Quantity(x, "radian")).magnitude
q[x > 2].magnitude
(q > 2 * u.m)
np.where(q > 2 * u.m, q, 0 * u.m).magnitude
q ** 2
q.max()
f"{q:.2f~P}"
(q * x.sum()).magnitude
q.m_as("cm")
q + r
np.dot(q, x)
u.Quantity([x[0], x[1]], "m").magnitude
""",
        {'f"{q:.2f~P}"': "f'{u.Quantity(x.to_numpy(), \"m\"):.2f~P}'"},
    ),
    Package(
        "xarray",
        "xarray",
        "2026.9",
        """
import xarray as xr
x = np.arange(12.0).reshape(3, 4)
labels = np.array(["a", "b", "c"])
data = xr.DataArray(x, dims=("r", "c"), coords={"r": labels, "c": np.arange(4) * 10})
""",
        """
xr.DataArray(x).sum().item()
data.sel(r="b").values
data.sel(c=np.array([10, 30])).values
data[np.array([2, 0])].values
data.where(data > 4).values
(data + x).values
(x + data).values
(data * x[0]).values
np.sqrt(data).values
data.mean("r").values
data.groupby("r").sum().values
data.interp(c=np.array([5.0, 15.0])).values
xr.Dataset({"a": (("r", "c"), x), "b": ("r", x[:, 0])}).mean().a.item()
xr.apply_ufunc(np.exp, data).values
xr.concat([data, data], "n").values
data.isel(r=np.array([True, False, True])).values
data.assign_coords(c=np.arange(4) + 1).c.values
xr.dot(data, data).item()
data.to_dataframe("v").v.tolist()
data.rolling(c=2).mean().values
data.dims, data.shape, data.dtype.str
xr.DataArray(x, dims=("a",))
""",
    ),
    Package(
        "zarr",
        "zarr",
        "3.1",
        """
import zarr
x = np.arange(20.0).reshape(4, 5)
def stored(value, **more):
    made = zarr.create_array({}, shape=value.shape, dtype=value.dtype, chunks=(2, 3), **more)
    made[:] = value
    return made
""",
        """
stored(x)[:]
stored(x)[1:3, ::2]
zarr.array(x)[:]
zarr.array(x, chunks=(2, 2))[:]
stored(x).oindex[np.array([0, 2]), :]
stored(x).vindex[np.array([0, 2]), np.array([1, 3])]
stored(x).get_mask_selection(x > 7)
stored(x).set_mask_selection(x > 7, x[x > 7] * 2)
stored(x).set_basic_selection((0, slice(None)), np.arange(5.0))
zarr.create_array({}, data=x)[:]
zarr.create_array({}, shape=(3,), dtype=x.dtype, fill_value=x.max())[:]
zarr.group({}).create_array("a", data=x)[:].sum()
zarr.full(store={}, shape=(2, 2), fill_value=x[0, 1])[:]
zarr.zeros_like(x, store={})[:]
stored(x > 3)[:]
stored(x.astype(np.complex64))[:]
np.asarray(stored(x))
np.sum(stored(x))
stored(x).attrs.put({"mean": float(x.mean())})
""",
    ),
    Package(
        "polars",
        "polars",
        "2.1",
        """
import polars as pl
x = np.arange(6.0) * 2
keys = np.arange(6) % 2
mask = x > 3
frame = pl.DataFrame({"x": [0.0, 1, 2, 3, 4, 5], "k": [0, 1, 0, 1, 0, 1]})
""",
        """
pl.Series("x", x)
pl.Series(x)
pl.DataFrame({"x": x, "keys": keys})
pl.DataFrame(np.ones((3, 2)), schema=["a", "b"])
frame.with_columns(pl.Series("y", x))
frame.with_columns(y=x)
frame.filter(mask)
frame["x"].filter(mask)
frame["x"][keys]
frame["x"].is_in(x)
frame["x"] + x
x + frame["x"]
np.sqrt(frame["x"])
pl.lit(x)
frame.select(pl.col("x").is_in(x))
pl.from_numpy(np.ones((2, 2)))
frame["x"].gather(keys)
frame["x"].search_sorted(x)
pl.Series([x, x])
pl.Series([x.sum(), x.max()])
pl.DataFrame({"a": [x[0], x[1]]})
frame["x"].scatter(np.array([0, 1]), x[:2])
frame.filter(pl.col("x") > x.mean())
frame["x"].map_elements(lambda v: np.sqrt(v), return_dtype=pl.Float64)
frame["x"].map_batches(lambda s: np.asarray(s) * 2)
frame.filter(np.ones(3, dtype=bool))
pl.Series(x, dtype=pl.Int8)
pl.Series("t", np.array(["2020-01-01"], dtype="M8[ns]"))
pl.DataFrame([x, keys])
""",
    ),
    Package(
        "pytensor",
        "PyTensor (its pip wants an older numba)",
        "3.0",
        """
import pytensor
import pytensor.tensor as pt
pytensor.config.mode = "FAST_COMPILE"
pytensor.config.cxx = ""
v = pt.dvector("v")
x = np.arange(4.0)
doubled = pytensor.function([v], v * 2)
shared = pytensor.shared(x, "shared")
""",
        """
doubled(x)
shared.get_value()
shared.set_value(x + 1), shared.get_value()
pt.as_tensor(x).eval()
pt.constant(x.sum()).eval()
(v + x).eval({v: x})
(x + v).eval({v: x})
pytensor.grad((v ** 2).sum(), v).eval({v: x})
(v * x.max()).eval({v: x})
v[np.array([0, 2])].eval({v: x})
pytensor.function([v], v.sum())(x)
doubled(np.ones((2, 2)))
""",
    ),
)
