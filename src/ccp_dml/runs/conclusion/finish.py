"""The end of a run: score the test half, certify, write the report and the result."""

from typing import Any

from ccp_dml.config.schema import Config
from ccp_dml.data.labelled import Parts, TestSet
from ccp_dml.foundation.files import write_json
from ccp_dml.models.embedder import Embedder
from ccp_dml.records import layout
from ccp_dml.records.embeddings import EmbeddedTest, save_embedded
from ccp_dml.records.logbook import Logbook
from ccp_dml.reports.page import write_report_of
from ccp_dml.runs.certify import CertificateOptions, write_certificate
from ccp_dml.runs.illustrations.report_data import write_map_pictures, write_report_data
from ccp_dml.runs.scoring import score_embeddings, score_raw


def finish_run(
    config: Config,
    logbook: Logbook,
    network: Embedder,
    parts: Parts,
    shown: TestSet,
    embedded: EmbeddedTest,
    facts: dict[str, Any],
) -> dict[str, Any]:
    """Score the best network, write everything that a finished run has, and return the result.

    `shown` is the test half as people see it: of a frozen backbone, `parts` hold features. `embedded` is that half as
    the network embeds it, `facts` are what training found out.
    """
    result = {
        "test": score_embeddings(embedded, config.protocol.recall_at),
        "raw": score_raw(config, parts.test, parts.learned),
        **facts,
    }
    save_embedded(logbook.folder, embedded)
    write_report_data(logbook.folder, shown, embedded, parts.learned, parts.validation)
    write_certificate(config, logbook, network, parts, embedded, facts["best_step"], CertificateOptions())
    write_classes_page_and_result(logbook, parts, result)
    return result


def finish_without_test(config: Config, logbook: Logbook, parts: Parts, facts: dict[str, Any]) -> dict[str, Any]:
    """Finish a run that no class is left to test: write page and result without a score."""
    result = {"test": None, "raw": None, **facts}
    if config.protocol.hold_out == "nothing":  # the scores in the log are of classes that train
        result |= {"validation": None, "start": None, "selected_on": "nothing"}
    write_map_pictures(logbook.folder, parts.learned, parts.validation)
    write_classes_page_and_result(logbook, parts, result)
    return result


def write_classes_page_and_result(logbook: Logbook, parts: Parts, result: dict[str, Any]) -> None:
    """Write the last files of a run, the result at the very end: a folder that has it is complete."""
    sets = {"learned": parts.learned, "validation": parts.validation.queries, "test": parts.test.queries}
    write_json(logbook.folder / layout.CLASSES, {name: list(part.class_names) for name, part in sets.items()})
    write_report_of(logbook.folder, result)
    logbook.finish(result)
