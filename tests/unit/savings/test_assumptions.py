from __future__ import annotations

import pytest

from gpuwarden_verdict.savings import ASSUMPTIONS, Assumptions, SavingsError, parse_savings

FILE = """
[assumptions]
hang_s = 600
[prices]
currency = "EUR"
kwh = 0.3
gpu_hour = { "*H100*" = 2.1, "*" = 1.0 }
"""


def test_a_file_sets_prices_and_assumptions_and_the_rest_keeps_its_default() -> None:
    read = parse_savings(FILE)
    assert (read.hang_s, read.restart_s, read.currency, read.kwh_price) == (
        600.0,
        388.0,
        "EUR",
        0.3,
    )
    assert (read.price_of("NVIDIA H100 80GB HBM3"), read.price_of("A100")) == (2.1, 1.0)
    assert parse_savings("") == Assumptions()
    assert Assumptions().price_of("NVIDIA H100 80GB HBM3") is None


def test_every_assumption_has_its_default_and_its_source() -> None:
    for one in ASSUMPTIONS:
        assert getattr(Assumptions(), one.name) == one.default
        assert one.source and one.what


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("x", "file"),
        ("[price]", "price"),
        ("[assumptions]\nhangs = 1", "assumptions.hangs"),
        ("[assumptions]\nhang_s = -1", "assumptions.hang_s"),
        ('[prices]\ncurrency = "USD"\ngpu_hour = { "*" = "2" }', "prices.gpu_hour.*"),
        ("[prices]\nkwh = 1", "prices.currency"),
        ("assumptions = 3", "assumptions"),
    ],
)
def test_what_cannot_be_used_is_named(text: str, key: str) -> None:
    with pytest.raises(SavingsError) as caught:
        parse_savings(text)
    assert caught.value.key == key
    assert caught.value.mend
