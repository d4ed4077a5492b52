"""A diagnosis as JSON."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from gpuwarden_server.core.bodies import Body
from gpuwarden_server.diagnosis.desk import Answer
from gpuwarden_server.diagnosis.repository import DiagnosisRow
from gpuwarden_verdict.diagnosis import Culprit, CulpritKind, Evidence, JobSpan, Window
from gpuwarden_verdict.diagnosis.domain import FAULT_CLASS, Scale
from gpuwarden_verdict.diagnosis.phases import JobPhases
from gpuwarden_verdict.diagnosis.robust import Run
from gpuwarden_verdict.diagnosis.strips import PlaneStrip, plane_of, plane_strips
from gpuwarden_verdict.diagnosis.window import Floats
from gpuwarden_verdict.diagnosis.words import culprit_words

LATEST_TIME = 4e9  # the year 2096: beyond it somebody sent milliseconds
UNDECIDED = "undecided"
_Number = float | None


class DiagnosisBody(Body):
    """A question: of a job, or of the fleet."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"job": "slurm:4711", "past_s": 3600}]}
    )

    job: str | None = Field(
        None, min_length=1, max_length=300, description="KIND:ID, or an id; null: the whole fleet"
    )
    begin: float | None = Field(
        None, ge=0, le=LATEST_TIME, description="epoch seconds; null: an hour before the end"
    )
    end: float | None = Field(
        None, ge=0, le=LATEST_TIME, description="epoch seconds; null: now, or the job's end"
    )
    past_s: float | None = Field(
        None, ge=0, le=86_400, description="how much before it is compared with; null: as much"
    )


class EvidenceView(BaseModel):
    """One link of the chain."""

    sentence: str
    strength: float = Field(description="0..1, what it adds")
    numbers: dict[str, _Number]


class ScaleView(BaseModel):
    """At which scale it shows."""

    affected_nodes: int
    among_nodes: int
    sentence: str
    spared_job_nodes: int | None = Field(description="largest job behind it that does not suffer")
    hurt_job_nodes: int | None = Field(description="smallest job behind it that suffers")
    calm_clients: int | None = Field(description="clients at once up to which it served well")
    strained_clients: int | None = Field(description="clients at once from which it did not")
    growth: _Number = Field(description="rank correlation of request time with clients at once")


class CulpritView(BaseModel):
    """One candidate."""

    kind: str
    entity: str
    node_id: str = Field(description="'' for what sits in no node")
    words: str
    layer: str = Field(description="of what it suffers, '' where its kind has one way only")
    fault_class: str
    score: float
    since: float
    until: float
    evidence: list[EvidenceView]
    hit_nodes: list[str]
    scale: ScaleView
    plane: str = Field("", description="gpu, nic, nfs or host; '' for the job's own doing")


class AcquittalView(BaseModel):
    """What was looked at and is not the cause."""

    what: str
    sentence: str


class PhasesView(BaseModel):
    """What the job did; lists are as long as `times`."""

    times: list[float] = Field(description="epoch seconds at which each step begins")
    step_s: float
    phase: list[str]
    effort: list[_Number] = Field(description="share of full effort of its GPUs")
    pace: list[_Number] = Field(description="speed against its own best")
    read_bytes: list[_Number] = Field(description="bytes a second")
    written_bytes: list[_Number] = Field(description="bytes a second")
    shares: dict[str, float] = Field(description="share of the asked time in each phase")
    measured: bool = Field(description="the pace is of told steps")


class StripView(BaseModel):
    """One figure of one plane; `values` is as long as the answer's `times`."""

    plane: str = Field(description="gpu, nic, nfs or host")
    name: str
    unit: str = Field(description="'' for counts")
    values: list[_Number]


class DiagnosisView(BaseModel):
    """The answer."""

    job: str = Field(description="'' for the fleet")
    kind: str = Field(description="of the first culprit; nothing; undecided")
    confidence: float
    line: str
    begin: float
    end: float
    past: float = Field(description="epoch seconds from which the past was read")
    nodes: int
    nodes_left_out: int = Field(description="nodes beyond the bound of one answer")
    culprits: list[CulpritView]
    acquitted: list[AcquittalView]
    blind: list[str] = Field(description="what could not be seen")
    slow_since: float | None = Field(description="the job is slower than by its own past since")
    lost_share: float = Field(description="share of its pace that it lost")
    phases: PhasesView | None
    times: list[float] = Field([], description="epoch seconds at which each step begins")
    step_s: float = 0.0
    strips: list[StripView] = Field([], description="what each plane showed; only what was read")


class StoredDiagnosisView(DiagnosisView):
    """The answer as it is kept; nodes in it have the names of its time."""

    id: str
    at: float = Field(description="when it was made, epoch seconds")
    asked_by: str = Field(description="name of the key; trigger: the server itself")


class DiagnosisRowView(BaseModel):
    """One of a list."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    at: float = Field(description="when it was made, epoch seconds")
    asked_by: str = Field(description="name of the key; trigger: the server itself")
    job: str = Field(description="'' for the fleet")
    kind: str = Field(description="of the first culprit; nothing; undecided")
    entity_kind: str = Field(description="of the first culprit, '' where none is named")
    entity: str
    node_id: str = Field(description="'' for what sits in no node")
    confidence: float
    line: str
    begin: float
    end: float


class DiagnosisPage(BaseModel):
    """Some of them, the newest first."""

    items: list[DiagnosisRowView]
    next_cursor: str | None


def kind_word(kind: CulpritKind | None) -> str:
    """The kind of an answer; what the evidence does not decide has a word too."""
    return UNDECIDED if kind is None else kind.value


def row_view(row: DiagnosisRow) -> DiagnosisRowView:
    """As JSON."""
    return DiagnosisRowView.model_validate(row)


def diagnosis_view(answer: Answer) -> DiagnosisView:
    """As JSON."""
    told, window, asked = answer.diagnosis, answer.window, answer.asked
    return DiagnosisView(
        job=told.job,
        kind=kind_word(told.kind),
        confidence=_rounded(told.confidence),
        line=told.line,
        begin=asked.begin,
        end=asked.end,
        past=asked.past,
        nodes=len(asked.nodes),
        nodes_left_out=answer.nodes_left_out,
        culprits=[_culprit(one, window) for one in told.culprits],
        acquitted=[AcquittalView(what=one.what, sentence=one.sentence) for one in told.acquitted],
        blind=list(told.blind),
        slow_since=None if told.slow is None else _span(told.slow, window)[0],
        lost_share=_rounded(told.lost),
        phases=None if told.phases is None else _phases(told.phases, window),
        times=window.times.tolist(),
        step_s=window.step_s,
        strips=[_strip(one) for one in plane_strips(window, _span_of(told.job, window))],
    )


def _span_of(job: str, window: Window) -> JobSpan | None:
    return next((one for one in window.jobs if job and one.job == job), None)


def _strip(one: PlaneStrip) -> StripView:
    return StripView(
        plane=one.plane.value, name=one.name, unit=one.unit, values=_numbers(one.values)
    )


def _culprit(one: Culprit, window: Window) -> CulpritView:
    since, until = _span(one.run, window)
    plane = plane_of(one.kind)
    return CulpritView(
        kind=one.kind.value,
        entity=one.entity,
        node_id=one.node,
        words=culprit_words(one),
        layer=one.layer.value,
        fault_class=FAULT_CLASS[one.kind].value,
        score=_rounded(one.score),
        since=since,
        until=until,
        evidence=[_evidence(link) for link in one.evidence],
        hit_nodes=list(one.hit),
        scale=_scale(one.scale),
        plane="" if plane is None else plane.value,
    )


def _span(run: Run, window: Window) -> tuple[float, float]:
    return float(window.times[run.first]), float(window.times[run.last]) + window.step_s


def _evidence(link: Evidence) -> EvidenceView:
    return EvidenceView(
        sentence=link.sentence,
        strength=_rounded(link.strength),
        numbers={name: _number(value) for name, value in link.numbers.items()},
    )


def _scale(scale: Scale) -> ScaleView:
    return ScaleView(
        affected_nodes=scale.affected,
        among_nodes=scale.among,
        sentence=scale.sentence,
        spared_job_nodes=scale.spared_jobs,
        hurt_job_nodes=scale.hurt_jobs,
        calm_clients=scale.calm_clients,
        strained_clients=scale.strained_clients,
        growth=None if scale.growth is None else _number(scale.growth),
    )


def _phases(phases: JobPhases, window: Window) -> PhasesView:
    return PhasesView(
        times=window.times.tolist(),
        step_s=window.step_s,
        phase=[one.value for one in phases.phase],
        effort=_numbers(phases.effort),
        pace=_numbers(phases.pace),
        read_bytes=_numbers(phases.read_bytes),
        written_bytes=_numbers(phases.written_bytes),
        shares={one.value: _rounded(s) for one, s in phases.shares(window.first).items()},
        measured=phases.measured,
    )


def _numbers(values: Floats) -> list[_Number]:
    return [_number(value) for value in values.tolist()]


def _number(value: float) -> _Number:
    return None if value != value else float(f"{value:.6g}")


def _rounded(value: float) -> float:
    return round(float(value), 4)
