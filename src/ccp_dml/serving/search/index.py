"""A searchable index in a folder: open it, search it exactly or approximately, look images up."""

import sqlite3
import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np

from ccp_dml.errors import UserError
from ccp_dml.serving.search import approximate
from ccp_dml.serving.search.exact_search import ExactSearcher
from ccp_dml.serving.search.gallery import Hit, Item, Sample, check_queries, drawn_rows, is_gone, known_values
from ccp_dml.serving.search.index_store import Manifest, check_files, damaged, map_vectors, open_items, read_manifest
from ccp_dml.serving.search.where import Value, as_sql, names_in, parse_where, passed_over, unknown_texts

ATTEMPTS_TO_OPEN = 5
"""A writer may replace the files between the moments in which we read their names and open them."""
IDS_PER_STATEMENT = 500
MOST_VALUES = 50  # of an attribute, to choose from
MOST_KNOWN = 10_000  # of an attribute, to tell whether an image has what a condition asks for


class SearchIndex:
    """An index of one generation: what a writer does meanwhile is seen by those who open it afterwards."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        check_files(folder, manifest)
        self.folder = folder
        self.manifest = manifest
        self.name = folder.resolve().name
        self.model = manifest.model
        self.count = manifest.count
        self.version = manifest.files["items"].digest[:12]
        self.warning: str | None = None  # what is not whole is not opened
        self.vectors = map_vectors(folder, manifest)  # (N, D)
        self._exact = ExactSearcher(self.vectors)
        self._table = open_items(folder, manifest)
        self._one_statement_at_a_time = threading.Lock()
        self.ids = np.array([row[0] for row in self._rows("SELECT id FROM items ORDER BY id")], dtype=np.int64)  # (N,)
        if len(self.ids) != self.count:
            raise damaged(folder, f"{len(self.ids):,} images but {self.count:,} vectors")
        self._approximate = approximate.open_index(folder, manifest)

    @classmethod
    def open(cls, folder: str | Path) -> "SearchIndex":
        """Open the newest generation; a UserError if there is no index, or a damaged one."""
        folder = Path(folder).expanduser()
        for _ in range(ATTEMPTS_TO_OPEN - 1):
            manifest = read_manifest(folder)
            try:
                return cls(folder, manifest)
            except (UserError, OSError):
                if read_manifest(folder).generation == manifest.generation:
                    break
                sleep(0.05)
        return cls(folder, read_manifest(folder))

    def reopened(self) -> "SearchIndex | None":
        # The whole manifest is compared: an index that was removed and made again counts its generations from 1.
        return None if read_manifest(self.folder) == self.manifest else SearchIndex.open(self.folder)

    def close(self) -> None:
        """Let go of the table of images: a program that opens many indexes would run out of files."""
        self._table.close()

    def search(
        self, queries: np.ndarray, k: int, where: str | None = None, leave_out: Collection[int] = ()
    ) -> list[list[Hit]]:
        """Find the `k` nearest images of each of `queries` (Q, D), or as many as there are.

        `where` keeps to images that satisfy a condition, `leave_out` are ids that must not be found.
        """
        queries = check_queries(queries, self.model.dim, k)
        rows = None if where is None else self._rows_where(where)
        left_out = set(leave_out)
        self._places(list(left_out))  # a KeyError for an id that is not there
        more = k + len(left_out)  # to search in all but these would copy all vectors, and no faiss index could help
        if rows is None and self._approximate is not None:
            distances, places = self._approximate.search(queries, self.vectors, more)
        else:
            distances, places = self._exact.nearest(queries, more, rows)
        wanted = self.ids[places]
        items = {item.id: item for item in self.items(np.unique(wanted).tolist())}
        return [
            [
                Hit(items[number], float(distance))
                for number, distance in zip(*both, strict=True)
                if number not in left_out
            ][:k]
            for both in zip(wanted.tolist(), distances, strict=True)
        ]

    def items(self, ids: Sequence[int]) -> list[Item]:
        found: dict[int, Item] = {}
        for start in range(0, len(ids), IDS_PER_STATEMENT):
            part = list(ids[start : start + IDS_PER_STATEMENT])
            marks = ",".join("?" * len(part))
            attributes: dict[int, dict[str, Value]] = {}
            for number, name, value in self._rows(
                f"SELECT id, name, value FROM attributes WHERE id IN ({marks})", part
            ):
                attributes.setdefault(number, {})[name] = value
            for number, path, label in self._rows(f"SELECT id, path, label FROM items WHERE id IN ({marks})", part):
                found[number] = Item(number, path, label, attributes.get(number, {}))
        return [found[number] for number in ids]

    def vectors_of(self, ids: Sequence[int]) -> np.ndarray:
        return np.asarray(self.vectors[self._places(ids)])

    def sample(self, limit: int) -> Sample:
        rows = drawn_rows(self.count, limit, self.model)
        labels = np.array([row[0] for row in self._rows("SELECT label FROM items ORDER BY id")], dtype=object)
        return Sample(self.ids[rows], labels[rows].tolist(), np.asarray(self.vectors[rows]))

    def label_counts(self) -> dict[str, int]:
        statement = "SELECT label, count(*) FROM items WHERE label IS NOT NULL GROUP BY label ORDER BY label"
        return dict(self._rows(statement))

    def attribute_names(self) -> list[str]:
        return [row[0] for row in self._rows("SELECT DISTINCT name FROM attributes ORDER BY name")]

    def attribute_values(self) -> dict[str, list[Value]]:
        return {name: self._distinct(name, MOST_VALUES) for name in self.attribute_names()}

    def _distinct(self, name: str, most: int) -> list[Value]:
        """List the distinct values of an attribute; none if there are more than `most`."""
        statement = "SELECT DISTINCT value FROM attributes WHERE name = ? ORDER BY value LIMIT ?"
        values = [row[0] for row in self._rows(statement, [name, most + 1])]
        return values if len(values) <= most else []

    def notes_on(self, where: str) -> list[str]:
        stored: dict[str, list[Value]] = {name: [] for name in self.attribute_names()}
        one_of_each = "SELECT name, min(value) FROM attributes GROUP BY name, typeof(value) = 'text'"
        for name, value in self._rows(one_of_each):
            stored[name].append(value)
        condition = parse_where(where, list(stored))
        asked = {name: self._distinct(name, MOST_KNOWN) for name in names_in(condition) if name in stored}
        return [*passed_over(condition, stored), *unknown_texts(condition, {**known_values(self), **asked})]

    def missing_images(self) -> list[str]:
        """List the paths of indexed images that are not there any more; they are still found."""
        return [path for (path,) in self._rows("SELECT path FROM items ORDER BY id") if is_gone(path)]

    def _rows_where(self, where: str) -> np.ndarray:
        sql, parameters = as_sql(parse_where(where, self.attribute_names()))
        found = [row[0] for row in self._rows(f"SELECT id FROM items WHERE {sql} ORDER BY id", parameters)]
        return self._places(found)

    def _places(self, ids: Sequence[int]) -> np.ndarray:
        """Find the rows of the vectors of these ids; a KeyError for one that is not there."""
        wanted = np.asarray(ids, dtype=np.int64)
        places = np.searchsorted(self.ids, wanted)
        known = places < self.count
        known[known] = self.ids[places[known]] == wanted[known]
        if not known.all():
            raise KeyError(int(wanted[~known][0]))
        return places

    def _rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            with self._one_statement_at_a_time:
                return self._table.execute(statement, parameters).fetchall()
        except sqlite3.ProgrammingError:  # not of the file: it may be whole
            raise UserError(f"The index {self.folder} has been closed; open it again to search it.") from None
        except sqlite3.OperationalError as error:  # of the disk or of SQLite's limits: the content may be whole
            raise UserError(
                f"The index {self.folder} cannot be read ({error}); try again, and if that does not help, remove it, "
                "and make it again with `ccp index`."
            ) from None
        except sqlite3.DatabaseError as error:
            raise damaged(self.folder, str(error)) from None
