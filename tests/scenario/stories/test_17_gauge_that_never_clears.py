"""Story 17 (dcgm-exporter#500, DCGM#277)."""

from __future__ import annotations

from gpuwarden_exporters.rules import XidForm, XidSeries
from gpuwarden_exporters.xids import XidWatch
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind
from tests.builders.stories import StoryFleet
from tests.builders.story_page import Story, assert_documented


def tell() -> StoryFleet:
    fleet = StoryFleet(1, gpus=2)
    node = fleet.nodes[0]
    repaired, struck = (gpu.gpu_uuid for gpu in node.gpus)
    fleet.never_excluded()
    fleet.never_suspect(node.gpu(0))
    watch, named = XidWatch(), {repaired, struck}
    for hour in range(50):
        gauge = {repaired: 79, struck: 0 if hour == 0 else 94}
        shown = [(XidSeries(XidForm.LAST_CODE, uuid, None), code) for uuid, code in gauge.items()]
        for news in watch.note(shown, named, unbroken=hour > 0):
            xid = {"entity_kind": EntityKind.GPU, "entity": news.gpu_uuid, "xid": news.code}
            fleet.events(node, fleet.event(EventKind.NVML_XID, count=news.count, **xid))
        fleet.run(3600, every_s=1200)
    return fleet


STORY = Story(
    17,
    "An exporter's last-value gauge that never clears",
    (
        "DCGM's gauge shows XID 79 on a GPU that was repaired weeks ago, and from now on 94 on "
        "another: it keeps both for ever."
    ),
    tell,
)


def test_story() -> None:
    fleet = tell()
    assert fleet.open() == []
    assert [one.entity.key for one in fleet.engine.incidents.values()] == ["GPU-n000-1"]
    assert_documented(STORY, fleet)
