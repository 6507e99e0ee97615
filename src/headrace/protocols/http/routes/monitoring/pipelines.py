"""Pipelines that report to the topics of the store: `GET /v1/pipelines`, and the report of one."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, get, put
from litestar.di import NamedDependency
from litestar.params import FromPath

from headrace.core.reports.pipelines import ListedState, PipelineDescription, PipelineReport
from headrace.edge.bridge import Bridge
from headrace.protocols.http.answers import perform
from headrace.protocols.http.openapi.document import Docs
from headrace.protocols.http.requests.raw_paths import unquoted
from headrace.protocols.http.requests.strict_json import read
from headrace.wire.operations import ListPipelines, ReportPipeline


class PipelineOut(msgspec.Struct):
    """A pipeline as it last reported, at `reported_us`; `lost` is a running one that is silent for a minute."""

    topic: str
    name: str
    state: ListedState
    reported_us: int
    report: PipelineReport

    @classmethod
    def of(cls, pipeline: PipelineDescription) -> PipelineOut:
        """A pipeline as JSON."""
        return cls(pipeline.topic, pipeline.name, pipeline.state, pipeline.reported_us, pipeline.report)


class PipelinesOut(msgspec.Struct):
    """Pipelines by topic and name."""

    pipelines: list[PipelineOut]


_REPORT = PipelineReport(
    run_id="6e0f4e7a",
    state="running",
    started_us=1_789_000_000_000_000,
    host="etl-3",
    source="topic orders",
    sink="delta table /lake/orders",
    batch=17,
    messages=170_000,
    messages_per_second=10_000.0,
    lag_messages=3_500,
    dead_letters=2,
    dead_letter_topic="orders-dead",
)
_EXAMPLE = PipelinesOut([PipelineOut("orders", "land-orders", "running", 1_789_000_017_000_000, _REPORT)])


@get(
    "/pipelines",
    opt={"operation": "list_pipelines", "docs": Docs(answer=PipelinesOut, example=_EXAMPLE)},
    tags=["pipelines"],
    summary="List pipelines",
)
async def list_pipelines(request: Request[Any, Any, Any], bridge: NamedDependency[Bridge]) -> PipelinesOut:
    """List the pipelines that report to topics on which you have any right. Those silent for 7 days are removed."""
    found = await perform(request, bridge, ListPipelines())
    return PipelinesOut([PipelineOut.of(pipeline) for pipeline in found])


@put(
    "/topics/{topic:str}/pipelines/{pipeline:str}",
    opt={"operation": "report_pipeline", "docs": Docs(body=PipelineReport, given=_REPORT, errors=(404,))},
    tags=["pipelines"],
    summary="Report the progress of a pipeline",
    status_code=204,
)
async def report_pipeline(
    request: Request[Any, Any, Any], topic: FromPath[str], pipeline: FromPath[str], bridge: NamedDependency[Bridge]
) -> None:
    """Report the progress of a pipeline that reads this topic, or writes to it. Only the last report is kept."""
    data = await read(request, PipelineReport)
    await perform(request, bridge, ReportPipeline(unquoted(topic), unquoted(pipeline), data))


HANDLERS = [list_pipelines, report_pipeline]
