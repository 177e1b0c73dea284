"""A run as JUnit XML, so that a CI shows failed scenarios like failed tests.

One suite per acceptance criterion, one case per sample. A fail is a `failure`; an invalid sample
is an `error`, because of its infrastructure error. Jenkins, GitLab and GitHub's reporters agree on
this shape.
"""

from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree as ET

from lhkit.harness.record import SampleRecord, Verdict
from lhkit.harness.report.facts import facts
from lhkit.harness.results import Run
from lhkit.harness.transcript import transcript, xml_text
from lhkit.locales import Catalog

_TRANSCRIPT_CHARS: Final = 20_000


def junit_xml(run: Run, catalog: Catalog, *, name: str) -> str:
    """Return the run as an XML document.

    Args:
        run: what to report.
        catalog: the texts.
        name: what the run is called.
    """
    summary = run.summary()
    root = _counted("testsuites", name, run.records)
    for tally in summary.by_ac:
        records = [record for record in run.records if record.ac == tally.name]
        suite = _counted("testsuite", tally.name, records)
        suite.set("skipped", "0")
        started = min((r.started_at for r in records if r.started_at), default=None)
        if started:
            suite.set("timestamp", xml_text(started))
        properties = ET.SubElement(suite, "properties")
        for label, value in facts(run, summary, catalog):
            ET.SubElement(properties, "property", name=xml_text(label), value=xml_text(value))
        suite.extend(_case(record, catalog, name) for record in records)
        root.append(suite)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _counted(element: str, name: str, records: Sequence[SampleRecord]) -> ET.Element:
    verdicts = [record.judgement.verdict for record in records]
    return ET.Element(
        element,
        name=xml_text(name),
        tests=str(len(records)),
        failures=str(verdicts.count(Verdict.FAIL)),
        errors=str(verdicts.count(Verdict.INVALID)),
        time=f"{sum(record.wall_s for record in records):.3f}",
    )


def _case(record: SampleRecord, catalog: Catalog, run_name: str) -> ET.Element:
    case = ET.Element(
        "testcase",
        classname=xml_text(f"{run_name}.{record.ac}"),
        name=xml_text(str(record.sample_id)),
        time=f"{record.wall_s:.3f}",
    )
    if record.judgement.verdict is not Verdict.PASS:
        kind = "failure" if record.judgement.verdict is Verdict.FAIL else "error"
        first = (
            record.judgement.reasons[0]
            if record.judgement.reasons
            else str(record.judgement.verdict)
        )
        found = ET.SubElement(
            case, kind, message=xml_text(first), type=str(record.judgement.verdict)
        )
        found.text = xml_text("\n".join(_failure_lines(record)))
    output = ET.SubElement(case, "system-out")
    output.text = xml_text(transcript(record, catalog, max_chars=_TRANSCRIPT_CHARS))
    return case


def _failure_lines(record: SampleRecord) -> list[str]:
    violations = (f"{v.severity}: {v.code}: {v.detail}" for v in record.judgement.violations)
    return [*record.judgement.reasons, *violations]
