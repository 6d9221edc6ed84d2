"""Options: one declaration each, checked values, environment, observers, documentation."""

from __future__ import annotations

import copy
import pickle
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lazyfuse import config
from lazyfuse.config import Options, options, rows
from lazyfuse.errors import ConfigurationError, EvaluationError

ROOT = Path(__file__).parents[2]


def test_every_option_is_documented_and_has_a_variable() -> None:
    for row in rows():
        assert len(row.help.splitlines()) == 1
        assert row.variable.startswith("LAZYFUSE_")
        assert type(row.default) is row.kind
    assert len({row.variable for row in rows()}) == len(rows())


def test_few_options_are_for_users() -> None:
    users = [row.name for row in rows() if not row.developer]
    assert 10 < len(users) <= 17  # three of them for arrays in chunks
    shown = repr(config.options)
    assert all(shown.index(name) < shown.index("for who works on") for name in users)


def test_the_page_of_options_is_current() -> None:
    text = runpy.run_path(str(ROOT / "scripts" / "write_options.py"))["text"]()
    assert (ROOT / "docs" / "options.md").read_text() == text, "run scripts/write_options.py"


def test_defaults_and_environment() -> None:
    plain = Options({})
    assert all(getattr(plain, row.name) == row.default for row in rows())
    given = Options(
        {
            "LAZYFUSE_EAGER_BELOW": "0",
            "LAZYFUSE_CACHE": "off",
            "LAZYFUSE_CACHE_LIMIT": "1.5GB",
            "LAZYFUSE_DEVICE": "null",
            "LAZYFUSE_THREADS": "7",
            "LAZYFUSE_NUM_THREADS": "",
        }
    )
    assert given.eager_below == 0
    assert given.cache is False
    assert given.cache_limit == 3 << 29
    assert given.device == "null"
    assert given.threads == 0


def test_a_wrong_variable_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"LAZYFUSE_EAGER_BELOW.*whole number.*'soon'"):
        Options({"LAZYFUSE_EAGER_BELOW": "soon"})


def test_setting_and_restoring() -> None:
    before = options.eager_below
    with options(eager_below=7, fusion="off") as inside:
        assert inside is options
        assert (options.eager_below, options.fusion) == (7, False)
        with options(eager_below=9):
            assert options.eager_below == 9
        assert options.eager_below == 7
    assert (options.eager_below, options.fusion) == (before, True)
    changed = options(eager_below=5)
    assert options.eager_below == 5
    changed.__exit__()
    assert options.eager_below == before


def test_restores_after_an_error() -> None:
    before = options.eager_below
    with pytest.raises(KeyError), options(eager_below=3):
        raise KeyError
    assert options.eager_below == before


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"eager": 1}, "unknown option: expected one of .*eager_below.*got 'eager'"),
        ({"threads": -1}, "threads: expected a whole number >= 0, got -1"),
        ({"threads": 2.5}, "threads: expected a whole number >= 0, got 2.5"),
        ({"threads": True}, "threads: expected a whole number"),
        ({"cache": "maybe"}, "cache: expected on or off, got 'maybe'"),
        ({"cache_limit": "12XB"}, "cache_limit: .*'256MB'.*got '12XB'"),
        ({"cache_dir": 3}, "cache_dir: expected text, got 3"),
    ],
)
def test_wrong_changes_are_refused_whole(change: dict[str, Any], text: str) -> None:
    before = options.eager_below
    with pytest.raises(ConfigurationError, match=rf"\[options\] {text}"):
        options(eager_below=before + 1, **change)
    assert options.eager_below == before
    assert issubclass(ConfigurationError, ValueError)


def test_attributes_are_checked_too() -> None:
    with options(threads=options.threads):
        options.threads = 3
        assert options.threads == 3
        with pytest.raises(ConfigurationError, match="threads"):
            options.threads = "many"  # type: ignore[assignment]
    with pytest.raises(ConfigurationError, match="unknown option"):
        options.nonsense = 1  # type: ignore[attr-defined]


def test_paths_are_text(tmp_path: Path) -> None:
    with options(cache_dir=tmp_path):
        assert options.cache_dir == str(tmp_path)


def test_observers_hear_of_changes_and_may_refuse() -> None:
    heard: list[int] = []

    def listen(value: int) -> None:
        if value == 13:
            raise ConfigurationError("not this one")
        heard.append(value)

    before = options.debug
    config.on_change("debug", listen)
    try:
        with options(debug=2):
            assert heard == [before, 2]
        assert heard == [before, 2, before]
        with pytest.raises(ConfigurationError), options(threads_above=5, debug=13):
            pass
        assert options.debug == before
        assert options.threads_above != 5
    finally:
        config._observers["debug"].remove(listen)


def test_listing() -> None:
    everything = repr(options())
    assert all(row.name in everything and row.help in everything for row in rows())
    with options(eager_below=3) as _:
        changed = repr(options(eager_below=4))
        assert "LAZYFUSE_EAGER_BELOW" in changed
        assert "LAZYFUSE_DEVICE" not in changed


def test_there_is_one_object() -> None:
    assert copy.deepcopy(options) is options
    assert pickle.loads(pickle.dumps(options)) is options


def test_the_environment_is_read_at_import() -> None:
    program = "import lazyfuse.config as c; print(c.options.eager_below, c.options.validate)"
    environment = {"LAZYFUSE_EAGER_BELOW": "17", "LAZYFUSE_VALIDATE": "yes", "PATH": ""}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["17", "True"]


def test_errors_show_where_and_pickle() -> None:
    error = EvaluationError(
        "no such thing", op="exp", file="a.py", line=3, function="f", stage="kernel 2"
    )
    text = str(error)
    assert text.splitlines() == [
        "[exp] no such thing",
        '  recorded in File "a.py", line 3, in f',
        "  while running kernel 2",
    ]
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.details) == (text, error.details)
