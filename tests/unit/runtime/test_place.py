from __future__ import annotations

import pytest

from gpuwarden_runtime.errors import SettingError
from gpuwarden_runtime.place import (
    Place,
    covering,
    excluded_by_verdict,
    parse_gpus,
    require_gpus,
    sentence,
)
from gpuwarden_runtime.records import Exclusion
from gpuwarden_wire.acknowledgement import EntityVerdict, NodeVerdict, Usable

UUID = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
GPU = Exclusion(
    entity_kind="gpu",
    entity=UUID,
    node_id="n1",
    gpu_uuid=UUID,
    gpu_index=3,
    pci_bus_id="0000:3b:00.0",
    since=1_700_000_000.0,
    reason="XID 79 fell off the bus",
    decision_id="dec-1",
    decided_by="rule",
)
NODE = Exclusion(entity_kind="node", entity="n1", node_id="n1", reason="rebooting")


@pytest.mark.parametrize(
    ("gpus", "covered"),
    [
        ((), True),
        (("3",), True),
        (("0", "3"), True),
        (("0",), False),
        ((UUID,), True),
        (("GPU-8932f937",), True),
        (("GPU-00000000",), False),
        (("0000:3b:00.0",), True),
        (("00000000:3B:00.0",), True),
        (("3b:00.0",), True),
        (("0001:3b:00.0",), False),
    ],
)
def test_gpu_exclusion_covers_the_gpus_named(gpus: tuple[str, ...], covered: bool) -> None:
    assert bool(covering(Place("n1", gpus), [GPU])) is covered


def test_node_exclusion_covers_any_of_its_gpus_and_no_other_node() -> None:
    assert covering(Place("n1", ("0",)), [NODE]) == (NODE,)
    assert covering(Place("n1.cluster"), [NODE]) == (NODE,)
    assert covering(Place("n2"), [NODE, GPU]) == ()


HAS = [
    EntityVerdict(
        entity_kind="gpu",
        entity=f"GPU-{n}{UUID[5:]}",
        usable=Usable.YES,
        index=n,
        pci_bus_id=f"0000:{n:02x}:00.0",
    )
    for n in range(2)
]


def test_gpus_that_the_node_has_may_be_named_in_any_form() -> None:
    for name in ("0", "1", "GPU-0932f937", HAS[1].entity, "00000000:01:00.0", "01:00.0"):
        require_gpus(Place("n1", (name,)), HAS)
    require_gpus(Place("n1"), HAS)


@pytest.mark.parametrize("name", ["99", "2", "GPU-ffffffff", "0000:99:00.0"])
def test_a_gpu_that_the_node_has_not_is_refused_with_what_it_has(name: str) -> None:
    with pytest.raises(SettingError) as caught:
        require_gpus(Place("n1", ("0", name)), HAS)
    assert f"--gpus {name}" in caught.value.detail and "n1" in caught.value.detail
    assert f"0 ({HAS[0].entity})" in caught.value.mend


def test_what_is_not_known_of_a_node_refuses_nothing() -> None:
    require_gpus(Place("n1", ("99",)), [])
    untold = [EntityVerdict(entity_kind="gpu", entity=UUID, usable=Usable.YES)]
    require_gpus(Place("n1", ("99", "0000:99:00.0")), untold)


def test_gpus_are_read() -> None:
    assert parse_gpus(f"0, 3,{UUID},0000:3b:00.0") == ("0", "3", UUID, "0000:3b:00.0")


@pytest.mark.parametrize("text", ["", " , ", "x", "GPU-1", "0;1", "-1"])
def test_other_gpus_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse_gpus(text)
    assert repr(text) in caught.value.detail
    assert caught.value.mend


def node_verdict(node: EntityVerdict, *gpus: EntityVerdict) -> NodeVerdict:
    return NodeVerdict(node_id="n1", node=node, gpus=gpus, feed_id="f", epoch=1, issued_at=0.0)


def test_verdict_alone_tells_node_from_gpu() -> None:
    node = EntityVerdict(entity_kind="node", entity="n1", usable=Usable.NO, decision_id="dec-1")
    gpu = EntityVerdict(
        entity_kind="gpu", entity=UUID, usable=Usable.NO, decision_id="dec-1", index=3
    )
    by_gpu = node_verdict(node, gpu)
    assert [item.entity for item in excluded_by_verdict(Place("n1"), by_gpu)] == [UUID]
    assert excluded_by_verdict(Place("n1", ("0",)), by_gpu) == ()
    others = [
        EntityVerdict(
            entity_kind="gpu", entity=f"GPU-{index}", usable=Usable.NO, decision_id="dec-1"
        )
        for index in range(2)
    ]
    by_node = node_verdict(node, *others)
    assert [item.entity for item in excluded_by_verdict(Place("n1", ("0",)), by_node)] == ["n1"]
    whole = node_verdict(node)
    assert [item.entity for item in excluded_by_verdict(Place("n1", ("0",)), whole)] == ["n1"]
    usable = node_verdict(EntityVerdict(entity_kind="node", entity="n1", usable=Usable.YES))
    assert excluded_by_verdict(Place("n1"), usable) == ()


def test_sentence_says_what_since_when_who_and_why() -> None:
    assert sentence(GPU) == (
        f"gpu {UUID} (index 3) of node n1 is excluded since 2023-11-14 22:13:20Z, "
        "decided by rule: XID 79 fell off the bus"
    )
