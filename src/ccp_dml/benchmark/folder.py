"""A benchmark's folder as `ccp benchmark` leaves it, read back for its report."""

import base64
import json
import shlex
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from ccp_dml.benchmark.table import BenchmarkTable, Cell, Column, TableRow
from ccp_dml.errors import UserError
from ccp_dml.evaluation import Spread
from ccp_dml.foundation.files import write_json
from ccp_dml.records.run_folder import RunFolder

REQUEST_FILE = "benchmark.toml"


def is_benchmark(path: Path) -> bool:
    return (path / REQUEST_FILE).is_file()


@dataclass(frozen=True)
class BenchmarkFolder:
    """What was asked for, what came out, and the runs behind it; no table before the benchmark has come to an end."""

    path: Path
    request: dict[str, Any]  # protocol, data, methods, repeats, settings
    table: BenchmarkTable | None
    figure: str | None  # a data URI
    runs: dict[str, RunFolder]  # by name, such as "c2-ccp/repeat0/fold3"

    @classmethod
    def read(cls, path: Path) -> Self:
        try:
            request = tomllib.loads((path / REQUEST_FILE).read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UserError(
                f"{path / REQUEST_FILE} is not valid TOML ({error}); restore it, or run the benchmark anew."
            ) from None
        missing = [key for key in ("protocol", "data", "methods", "repeats", "settings") if key not in request]
        if missing:
            raise UserError(
                f"{path / REQUEST_FILE} does not say {missing[0]!r}; restore it, or run the benchmark anew."
            )
        order = [_label(method) for method in request["methods"]]
        folders = [file.parent for method in order for file in sorted(path.glob(f"{method}/repeat*/**/config.toml"))]
        return cls(
            path=path,
            request=request,
            table=read_table(path),
            figure=_svg_uri(path / "improvement.svg"),
            runs={folder.relative_to(path).as_posix(): RunFolder.read(folder) for folder in folders},
        )

    @property
    def title(self) -> str:
        protocol = str(self.request["protocol"]).replace("mlrc", "MLRC")
        return self.table.title if self.table else f"{protocol} protocol on {self.request['data']}"

    def methods(self) -> dict[str, list[RunFolder]]:
        """The runs of each method, in the order of the request; methods without a run yet are left out."""
        grouped: dict[str, list[RunFolder]] = {}
        for name, run in self.runs.items():
            grouped.setdefault(name.partition("/")[0], []).append(run)
        return grouped

    def command(self) -> str:
        """What does it again, or continues it."""
        request = self.request
        options = ["--data", request["data"], "--methods", ",".join(request["methods"])]
        options += ["--repeats", str(request["repeats"])]
        options += [part for setting in request["settings"] for part in ("--set", setting)]
        return shlex.join(["ccp", "benchmark", request["protocol"], *options, "--out", str(self.path)])


def _label(method: str) -> str:
    """What folders call a method: a recipe of one's own goes by its file's name without the ending."""
    return Path(method).stem if method.endswith(".toml") else method


def _svg_uri(path: Path) -> str | None:
    if not path.is_file():
        return None
    return "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode("ascii")


TABLE_FILE = "table.json"


def write_table(folder: Path, table: BenchmarkTable) -> None:
    write_json(folder / TABLE_FILE, asdict(table))


def read_table(folder: Path) -> BenchmarkTable | None:
    """The table that `write_table` left in `folder`, if any."""
    path = folder / TABLE_FILE
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        rows = [
            TableRow(row["method"], row["is_marked"], [_cell(cell) for cell in row["cells"]]) for row in values["rows"]
        ]
        return BenchmarkTable(values["title"], [Column(**one) for one in values["columns"]], rows, values["notes"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is damaged ({error}); repeat the benchmark's command, which writes it anew without training again."
        ) from None


def _cell(values: dict | None) -> Cell | None:
    return None if values is None else Cell(Spread(**values["score"]), values["paper"], values["is_best"])
