"""pandas in ordinary use: tables from arrays, keys and masks that are arrays, and back."""

import io
import sys

import numpy as np
import pandas as pd

SIZES = (60, 20_000)


def show(name, *values):
    for value in values:
        if isinstance(value, (pd.Series, pd.DataFrame)):
            value = value.to_string(float_format="{:.6g}".format)
        elif isinstance(value, pd.Index):
            value = list(value[:5])
        elif not isinstance(value, (str, tuple)):
            value = np.array2string(np.asarray(value), precision=6, threshold=8)
        print(name, value)


def tables(n):
    x = np.arange(float(n))
    kind = np.arange(n) % 4
    return pd.DataFrame({"x": x, "kind": kind, "name": np.array(["a", "b", "c", "d"])[kind]})


def make(n):
    x = np.linspace(0, 1, n)
    table = pd.DataFrame(np.stack([x, x**2], axis=1), columns=np.array(["u", "v"]))
    show("table", table.sum(), table.dtypes)
    show("index", pd.Series(x, index=np.arange(n)[::-1]).loc[0], pd.Index(np.arange(n)).nunique())
    columns = [np.arange(n) % 2, np.arange(n) % 3]
    show("levels", pd.DataFrame({"x": x}, index=columns).groupby(level=0).sum())
    show(
        "numbers", pd.Series({"mean": x.mean(), "total": x.sum()}), pd.Series([x.max()]).dtype.name
    )
    show("rows", pd.DataFrame([x[:3], x[3:6]]).shape, pd.DataFrame({"m": x.mean()}, index=[0]).m)
    shared = np.arange(float(n))
    series = pd.Series(shared, copy=False)
    shared[0] = 99.0
    show("shared", series.iloc[0])
    series = pd.Series(shared)
    shared[0] = -1.0
    show("copied", series.iloc[0])
    show("days", pd.to_datetime(np.array(["2020-01-01", "2020-02-01"])).month)
    show("hours", pd.Timestamp("2020") + pd.to_timedelta(np.arange(3), unit="h"))
    show("categories", pd.Categorical(np.array(["u", "v", "u"])).categories)
    record = np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")])
    show("records", pd.DataFrame(record), tuple(pd.DataFrame(record).to_records().dtype.names))


def choose(n):
    table = tables(n)
    x, kind = np.arange(float(n)), np.arange(n) % 4
    third = x % 3 == 0
    show("mask", table[third].shape, table.loc[~third, "x"].sum(), table.x[third].sum())
    show("places", table.iloc[kind + 1].x.sum(), table.x.iloc[third].sum(), table.x.loc[kind].sum())
    show("scalars", table.x.iat[x.argmax()], table.x.iloc[x.argmin()], table.loc[kind.max(), "x"])
    table["y"] = x * 2
    table.loc[third, "y"] = 0
    table.loc[kind == 1, "x"] = x[kind == 1] + 0.5
    table["mean"] = x.mean()
    table.loc[0, "mean"] = x.sum()
    show("set", table.sum(numeric_only=True), table.dtypes)
    series = table.x.copy()
    series[third] = -1.0
    series.iloc[kind[:2]] = np.nan
    show("written", series.sum(), series.isna().sum(), series.where(third, x).sum())
    show("sample", table.sample(3, random_state=np.random.default_rng(0)).x)
    x[table.x > 2] = 0
    show("array by series", x.sum(), kind[table.kind].sum())
    show("query", table.query("x > @x.mean()").shape, table.eval("x * 2 + kind").sum())


def group(n):
    table = tables(n)
    kind = np.arange(n) % 5
    show("keys", table.groupby(kind).x.sum(), table.x.groupby([kind, table.name]).mean().head(3))
    show("functions", table.groupby("kind").x.agg([np.min, np.max, "mean"]))
    show("transform", table.groupby(kind).x.transform(lambda g: (g - g.mean()) / g.std()).sum())
    show("apply", table.groupby(kind).x.apply(lambda g: np.sqrt(g.to_numpy()).sum()))
    show("rows", table[["x", "kind"]].head(4).apply(lambda row: np.array([row.x, 1]), axis=1))
    show("cut", pd.cut(np.arange(n), 3).value_counts().to_numpy(), pd.factorize(kind)[1])
    bins = pd.cut(table.x, np.linspace(0, n, 4), labels=np.array(["low", "middle", "high"]))
    show("bins", bins.value_counts(), pd.unique(kind))
    show("cross", pd.crosstab(kind, table.name), pd.get_dummies(kind).sum())
    table["late"] = table.x > n / 2
    show("pivot", table.pivot_table(values="x", index="kind", columns="late", aggfunc=np.mean))
    other = pd.DataFrame({"kind": np.arange(4), "weight": np.arange(4) * 1.5})
    show("merge", table.merge(other, on="kind").weight.sum())


def compute(n):
    table = tables(n)
    series = table.x
    x = np.arange(float(n)) + 1
    numbers = table[["x", "kind"]]
    mixed = {
        "series first": series + x,
        "array first": x - series,
        "comparison": (x <= series) & (series > x.mean()),
        "number": x.mean() * series / x.std(),
        "ufunc": np.add(x, np.sqrt(series)),
        "table": numbers * np.array([1, 2]) + np.ones((n, 2)),
        "divmod": divmod(series, 3)[0],
        "clip": np.clip(series, 1, x.mean()),
        "logical": np.logical_or(series > 1, x > 2),
    }
    for name, result in mixed.items():
        show(name, type(result).__name__, result.sum())
    x += series
    show("in place", type(x).__name__, x.sum())
    x = series.to_numpy() + 0.0
    for name, result in {
        "where": np.where(series > 2, series, x * 2),
        "concatenate": np.concatenate([series, x]),
        "percentile": np.percentile(series, [25, 50]),
        "interp": np.interp(series, x, x**2),
        "histogram": np.histogram(series, 3)[0],
        "polyfit": np.polyfit(series, x, 1).round(6),
        "matmul": x @ series,
        "unique": np.unique(table.kind),
        "select": np.select([series < 1, series < 3], [series, series * 2], 0),
    }.items():
        show(name, np.shape(result), result)
    show("means", np.mean(numbers, axis=0), numbers @ np.eye(2)[:, 0] @ np.ones(n))
    show("windows", series.rolling(3).mean().sum(), series.ewm(span=3).mean().iloc[-1])
    small = series.head(20).rolling(3)
    show("window function", small.apply(lambda w: np.max(w) - w[0], raw=True).sum())
    dated = pd.Series(x, index=pd.date_range("2020", periods=n, freq="h"))
    show("days", dated.resample("D").sum().head(2), dated.cumsum().iloc[-1])
    show(
        "fill",
        series.replace(x.max(), np.nan).fillna(x.mean()).sum(),
        series.between(2, x[-2]).sum(),
    )
    text = table.head(3).to_csv()
    show("csv", text, pd.read_csv(io.StringIO(text), index_col=0).dtypes)
    show("equal", series.equals(pd.Series(x)), pd.util.hash_array(np.arange(2)))


def main():
    for n in map(int, sys.argv[1:] or SIZES):
        print(f"--- {n} rows")
        make(n)
        choose(n)
        group(n)
        compute(n)


if __name__ == "__main__":
    main()
