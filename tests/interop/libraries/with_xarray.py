"""xarray in ordinary use: labelled arrays, data sets, groups, interpolation and files."""

import sys

import numpy as np
import xarray as xr

SIZES = (60, 200_000)


def show(name, *values):
    print(name, *[np.array2string(np.asarray(x), precision=6, threshold=8) for x in values])


def labelled(n):
    times = np.arange(n // 10)
    values = np.arange(n // 10 * 10.0).reshape(-1, 10)
    return xr.DataArray(
        values, dims=("time", "x"), coords={"time": times, "x": np.linspace(0, 1, 10)}, name="v"
    )


def compute(n):
    array = labelled(n)
    row = np.arange(10.0)
    show("add", (array + row).sum(), (row * array).sum(), (array - array.mean("time"))[1])
    show("number", array * row.mean(), type(row * array).__name__)
    show("ufuncs", np.sqrt(array).sum(), np.maximum(array, row).sum(), np.add(row, array).sum())
    show("functions", np.mean(array), np.clip(array, 1, row.max()).sum(), array.dot(array).round(3))
    show("select", array.sel(x=0.5, method="nearest")[:3], array.isel(time=np.arange(3))[:, 0])
    show(
        "mask", array.where(array > row.mean()).count(), array[np.arange(len(array)) % 3 == 0].sum()
    )
    show("interp", array.interp(x=np.array([0.25, 0.75]))[:2])
    show("groups", array.groupby(array.time % 3).mean()[:, 0], array.rolling(x=3).mean().sum())
    show("coarsen", array.coarsen(x=2).sum()[0], array.cumsum("x")[0], array.std(), array.std())
    show("apply", xr.apply_ufunc(lambda v: np.tanh(v / n), array).sum())
    spread = xr.apply_ufunc(np.ptp, array, input_core_dims=[["x"]], kwargs={"axis": -1})
    show("core", spread[:3], xr.concat([array, array], "time").shape, array.quantile(0.5))
    where = xr.where(array > 3, array, row[0])
    show("where", where.sum(), array.fillna(row.mean()).sum(), array.T.values[0, :3])
    array[0] = row * 2
    array.loc[{"x": 0.0}] = -1.0
    array += row
    show("written", array[0], array.data.sum(), array.to_numpy()[1])
    row += 1
    show("kept", array[0])


def sets(n):
    array = labelled(n)
    data = xr.Dataset(
        {"a": array, "b": ("time", np.arange(n // 10) * 0.5)}, attrs={"scale": np.float64(2)}
    )
    data["c"] = data.a * data.b + np.ones(10)
    show("set", data.c.mean(), data.sum().a, *data.sizes.values())
    table = data.to_dataframe()
    show("frame", table.c.sum(), table.to_xarray().c.sum(), xr.DataArray(table.b).sum())
    show(
        "days",
        data.b.assign_coords(time=np.arange(n // 10).astype("M8[D]")).resample(time="7D").sum()[:3],
    )
    show(
        "sorted",
        data.sortby("time", ascending=False).b[:3],
        data.b.polyfit("time", 1).polyfit_coefficients,
    )
    show(
        "merge", xr.merge([data[["a"]], data[["b"]]]).b.sum(), data.identical(data.copy(deep=True))
    )
    stored = xr.load_dataset(bytes(data.drop_attrs().to_netcdf(engine="scipy")), engine="scipy")
    show("netcdf", stored.c.sum(), stored.a.values[:2, :2], stored.equals(data))
    print(data.b.isel(time=slice(3)))


def main():
    for n in map(int, sys.argv[1:] or SIZES):
        print(f"--- {n} elements")
        compute(n)
        sets(n)


if __name__ == "__main__":
    main()
