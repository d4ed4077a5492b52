from __future__ import annotations

import pytest

from gpuwarden_verdict.entities import FaultClass
from gpuwarden_verdict.policy.document import Cap, Mode
from gpuwarden_verdict.policy.parse import (
    BUILT_IN,
    PolicyError,
    override_mode,
    parse_policy,
    pool_of,
)

FULL = """
[defaults]
mode = "observe"
exclude_confidence = 0.7
settle_s = 10
dwell_s = 60
exclusion_ttl_s = 3600
score_may_exclude = true
cap = { max_nodes = 3, max_percent = 7.5 }
[[pools]]
name = "train"
nodes = ["gpu-*", "big[0-9]"]
mode = "act"
cap = { max_nodes = 2 }
[[pools]]
name = "rest"
nodes = ["gpu-1*"]
"""


def test_an_empty_file_gives_the_built_in_rules_with_the_default_mode() -> None:
    document = parse_policy("", Mode.ADVISE)
    (pool,) = document.pools
    assert (pool.name, pool.nodes, pool.mode, pool.cap) == (
        "default",
        ("*",),
        Mode.ADVISE,
        BUILT_IN.cap,
    )


def test_pools_inherit_key_by_key_and_the_first_match_has_the_node() -> None:
    document = parse_policy(FULL, Mode.ACT)
    train = pool_of(document, "gpu-17")
    assert (train.name, train.mode, train.cap) == ("train", Mode.ACT, Cap(2, 7.5))
    assert (train.exclude_confidence, train.score_may_exclude) == (0.7, True)
    assert pool_of(document, "big7").name == "train"
    other = pool_of(document, "login-1")
    assert (other.name, other.mode) == ("default", Mode.OBSERVE)  # [defaults] beats GPUWARDEN_MODE


def test_the_version_follows_the_rules_and_not_the_writing() -> None:
    spaced = FULL.replace(" = ", "  =  ") + "\n# a comment\n"
    assert parse_policy(FULL).version == parse_policy(spaced).version
    assert parse_policy(FULL).version != parse_policy(FULL.replace("7.5", "8")).version
    assert len(parse_policy(FULL).version) == 12


def test_override_mode_touches_the_default_pool_only() -> None:
    document = override_mode(parse_policy(FULL), Mode.ADVISE)
    assert pool_of(document, "login").mode is Mode.ADVISE
    assert pool_of(document, "gpu-1").mode is Mode.ACT


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("mode = [", "file"),
        ('mode = "act"', "mode"),
        ('[defaults]\nmode = "acts"', "defaults.mode"),
        ("[defaults]\nexclude_confidence = 1.5", "defaults.exclude_confidence"),
        ("[defaults]\nexclude_confidence = true", "defaults.exclude_confidence"),
        ('[defaults]\nsettle_s = "30"', "defaults.settle_s"),
        ("[defaults]\nsettle_s = -1", "defaults.settle_s"),
        ("[defaults]\ndwell_s = nan", "defaults.dwell_s"),
        ("[defaults]\ndwell_s_of = { heat = 3 }", "defaults.dwell_s_of.heat"),
        ("[defaults]\ndwell_s_of = { nic = -1 }", "defaults.dwell_s_of.nic"),
        ("[defaults]\nexclusion_ttl_s = 1", "defaults.exclusion_ttl_s"),
        ("[defaults]\nscore_may_exclude = 1", "defaults.score_may_exclude"),
        ("[defaults]\ncap = 3", "defaults.cap"),
        ("[defaults]\ncap = { max_nodes = 1.5 }", "defaults.cap.max_nodes"),
        ("[defaults]\ncap = { max_nodes = -1 }", "defaults.cap.max_nodes"),
        ("[defaults]\ncap = { max_percent = 101 }", "defaults.cap.max_percent"),
        ("[defaults]\ncap = { most = 1 }", "defaults.cap.most"),
        ("[defaults]\ncolour = 1", "defaults.colour"),
        ("pools = 3", "pools"),
        ('[[pools]]\nnodes = ["*"]', "pools[0].name"),
        ('[[pools]]\nname = "a"', "pools[0].nodes"),
        ('[[pools]]\nname = "a"\nnodes = []', "pools[0].nodes"),
        ('[[pools]]\nname = "a"\nnodes = "gpu-*"', "pools[0].nodes"),
        ('[[pools]]\nname = ""\nnodes = ["*"]', "pools[0].name"),
        ('[[pools]]\nname = "default"\nnodes = ["*"]', "pools[0].name"),
        (
            '[[pools]]\nname = "a"\nnodes = ["*"]\n[[pools]]\nname = "a"\nnodes = ["*"]',
            "pools[1].name",
        ),
        ('[[pools]]\nname = "a"\nnodes = ["*"]\nmoed = "act"', "pools[0].moed"),
    ],
)
def test_a_mistake_is_named_with_its_key_and_its_mend(text: str, key: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy(text)
    assert caught.value.key == key
    assert caught.value.mend
    assert key in str(caught.value)


def test_a_pool_may_go_by_labels_of_the_inventory() -> None:
    document = parse_policy(
        '[[pools]]\nname = "train"\nlabels = { pool = "train-*", rack = "r1" }\n'
        '[[pools]]\nname = "both"\nnodes = ["gpu-*"]\nlabels = { pool = "spare" }\n'
    )
    assert pool_of(document, "x", {"pool": "train-a", "rack": "r1"}).name == "train"
    assert pool_of(document, "x", {"pool": "train-a", "rack": "r2"}).name == "default"
    assert pool_of(document, "x", {"pool": "train-a"}).name == "default"
    assert pool_of(document, "gpu-1").name == "both"
    assert pool_of(document, "x", {"pool": "spare"}).name == "both"


@pytest.mark.parametrize(
    ("pool", "key"),
    [
        ('name = "a"', "pools[0].nodes"),
        ('name = "a"\nlabels = {}', "pools[0].labels"),
        ('name = "a"\nlabels = { rack = 1 }', "pools[0].labels.rack"),
    ],
)
def test_labels_that_say_nothing_are_refused(pool: str, key: str) -> None:
    with pytest.raises(PolicyError) as error:
        parse_policy(f"[[pools]]\n{pool}")
    assert error.value.key == key


def test_the_dwell_may_differ_by_class_and_pools_inherit_it() -> None:
    pool_a = "[[pools]]\nname = 'a'\nnodes = ['a*']\ndwell_s = 9"
    document = parse_policy(f"[defaults]\ndwell_s_of = {{ nic = 5 }}\n{pool_a}")
    for pool, rest in zip(document.pools, (9.0, 600.0), strict=True):
        assert pool.dwell_of(FaultClass.NIC) == 5.0
        assert pool.dwell_of(FaultClass.BUS) == rest
