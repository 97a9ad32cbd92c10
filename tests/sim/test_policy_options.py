"""Options of policies and caps: where a spec is cut into options, JSON values among them."""

from __future__ import annotations

import pytest

from sim.policies import call_with_options
from traces.errors import InputError


def keep(table: str = "", k: int = 0) -> tuple[str, int]:
    return table, k


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("a.json,k=3", ("a.json", 3)),
        ("k=3,table=a.json", ("a.json", 3)),
        ("[[1,8,3],[9,64,1]],k=3", ("[[1,8,3],[9,64,1]]", 3)),  # commas inside brackets are the value's
        ("k=3,table=[[1,8,3],[9,64,1]]", ("[[1,8,3],[9,64,1]]", 3)),
        ('{"model":"a=b,]","x":[1,2]},k=3', ('{"model":"a=b,]","x":[1,2]}', 3)),  # = , ] inside a string
        (r'{"a":"\",]"},k=3', (r'{"a":"\",]"}', 3)),  # an escaped quote does not end the string
        ("[1,2", ("[1,2", 0)),  # never closed: one value, for its reader to refuse
    ],
)
def test_json_is_one_value(options, expected):
    assert call_with_options(keep, "test", options) == expected


@pytest.mark.parametrize("options", ["k=3,a.json", "b=1", "k=", "k=x", "[1],[2]", "k=3,k=4", "k=2147483648"])
def test_bad_options(options):
    with pytest.raises(InputError, match="test"):
        call_with_options(keep, "test", options)


def test_the_largest_option():
    # what adds up over a batch of 256 stays below 2^63: 256 * (2^31 - 1) < 2^39
    assert call_with_options(keep, "test", "k=2147483647") == ("", 2**31 - 1)
