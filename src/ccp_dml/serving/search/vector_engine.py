"""An index in Milvus, for people who outgrow one machine: a cluster, or the same engine embedded as a local file.

A collection holds the images; a second one beside it, NAME_about, says of which model the vectors are, whether the
upload is complete, and which labels and attribute values there are.
"""

import json
import logging
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np

from ccp_dml.errors import UserError, first_line, listing
from ccp_dml.foundation.files import from_json
from ccp_dml.serving.search.gallery import (
    Gallery,
    Hit,
    Item,
    Sample,
    check_queries,
    drawn_rows,
    exact_nearest,
    known_values,
)
from ccp_dml.serving.search.index import SearchIndex
from ccp_dml.serving.search.index_store import PinnedModel, is_index
from ccp_dml.serving.search.where import Value, as_milvus, parse_where, passed_over, unknown_texts

ABOUT = "_about"
BATCH = 500
IDS_PER_QUESTION = 4_000
ATTEMPTS = 5
FIRST_PAUSE_SECONDS = 0.2
LONGEST_TEXT = 60_000  # bytes; Milvus stores up to 65,535 in a text
MOST_RESULTS = 16_384  # what Milvus gives at once
FIELDS = ["path", "label", "attributes"]


@dataclass(frozen=True)
class Address:
    """Where a collection is: `http://host:19530#birds`, or the file of an embedded engine: `birds.db#birds`."""

    engine: str
    collection: str | None

    @classmethod
    def read(cls, text: str) -> "Address":
        engine, _, collection = text.partition("#")
        if collection and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,200}", collection):
            raise UserError(
                f"{collection!r} cannot be the name of a collection; use letters, digits and _, after a letter."
            )
        return cls(engine, collection or None)


def is_address(text: str) -> bool:
    engine = text.partition("#")[0]
    return "://" in engine or engine.endswith(".db")


def open_gallery(text: str) -> Gallery:
    """Open what a user names: an index's folder, or the address of a vector engine."""
    if is_index(Path(text).expanduser()) or not is_address(text):
        return SearchIndex.open(text)
    return MilvusGallery.open(text)


class MilvusGallery:
    """A pushed index. Milvus proposes candidates; their exact distances rank them, as in a local index."""

    def __init__(self, client: Any, collection: str, address: str) -> None:
        self.client = client
        self.collection = collection
        self.name = address
        header = read_header(client, collection)
        if header is None:
            raise UserError(f"{address} has no collection {collection!r} that `ccp index push` made.")
        self.model = PinnedModel(**header["model"])
        (row,) = client.query(collection, filter="", output_fields=["count(*)"])
        self.count = int(row["count(*)"])
        self.warning = None if header["complete"] else unfinished_sentence(address, self.count, header["count"])
        self._attribute_names: list[str] = header["attributes"]
        self._pieces: int = header["pieces"]
        self._next_id: int = header["next_id"]
        self.version = f"{self.count}-{self._next_id}"

    @classmethod
    def open(cls, text: str) -> "MilvusGallery":
        """Open the collection that an address names, or the only one of the engine."""
        address = Address.read(text)
        if "://" not in address.engine and not Path(address.engine).expanduser().exists():
            raise UserError(f"There is no {address.engine}; make it with `ccp index push INDEX {text}`.")
        client = connect(address.engine)
        ours = sorted(name.removesuffix(ABOUT) for name in client.list_collections() if name.endswith(ABOUT))
        if address.collection is None and len(ours) != 1:
            what = f"the collections {listing(ours)}; name one: {address.engine}#{ours[0]}" if ours else "no index"
            raise UserError(f"{address.engine} holds {what}.")
        name = address.collection or ours[0]
        if name not in ours:
            raise UserError(f"{address.engine} holds no index {name!r}; it holds {listing(ours) or 'none'}.")
        if name not in client.list_collections():
            raise UserError(
                f"A push to {address.engine}#{name} was cut off before it sent an image; finish it with "
                f"`ccp index push INDEX {address.engine}#{name}`."
            )
        client.load_collection(name)
        client.load_collection(name + ABOUT)
        return cls(client, name, text)

    def reopened(self) -> None:
        """Stay with what was opened: searches see what was pushed since, and to ask for more takes a call each time."""

    def close(self) -> None:
        self.client.close()

    def search(
        self, queries: np.ndarray, k: int, where: str | None = None, leave_out: Collection[int] = ()
    ) -> list[list[Hit]]:
        queries = check_queries(queries, self.model.dim, k)
        if min(k, self.count) > MOST_RESULTS:
            raise UserError(
                f"k = {k:,}: Milvus gives at most {MOST_RESULTS:,} images at once; ask for that many, with conditions "
                "(`--where`) in several searches if need be, or search in the index that was pushed."
            )
        conditions = [] if where is None else [as_milvus(parse_where(where, self._attribute_names))]
        conditions += [f"id not in {sorted(map(int, leave_out))}"] if leave_out else []
        found = self.client.search(
            self.collection,
            data=[query.tolist() for query in queries],
            limit=min(MOST_RESULTS, max(2 * k, k + 16)),  # more than wanted, as its ties and roundings are not ours
            filter=" and ".join(conditions),
            output_fields=["vector", *FIELDS],
            search_params={"metric_type": "L2"},
        )
        return [_ranked(query, hits, k) for query, hits in zip(queries, found, strict=True)]

    def items(self, ids: Sequence[int]) -> list[Item]:
        found = {row["id"]: _item(row) for row in self._look_up(ids, FIELDS)}
        return [found[number] for number in ids]

    def vectors_of(self, ids: Sequence[int]) -> np.ndarray:
        found = {row["id"]: row["vector"] for row in self._look_up(ids, ["vector"])}
        return np.array([found[number] for number in ids], dtype=np.float32).reshape(-1, self.model.dim)

    def sample(self, limit: int) -> Sample:
        ids = np.array(sorted(stored_ids(self.client, self.collection, self._next_id)), dtype=np.int64)
        ids = ids[drawn_rows(len(ids), limit, self.model)]
        return Sample(ids, [item.label for item in self.items(ids.tolist())], self.vectors_of(ids.tolist()))

    def label_counts(self) -> dict[str, int]:
        return dict(self._details()["labels"])

    def attribute_values(self) -> dict[str, list[Value]]:
        return dict(self._details()["values"])

    def notes_on(self, where: str) -> list[str]:
        # The engine keeps values of attributes with few different ones only; about the others there is no note.
        condition = parse_where(where, self._attribute_names)
        return [*passed_over(condition, self.attribute_values()), *unknown_texts(condition, known_values(self))]

    def _details(self) -> Any:
        rows = self.client.query(
            self.collection + ABOUT, filter=f"id >= 1 and id <= {self._pieces}", output_fields=["text"]
        )
        return from_json("".join(row["text"] for row in sorted(rows, key=lambda row: row["id"])))

    def _look_up(self, ids: Sequence[int], fields: list[str]) -> Iterator[dict[str, Any]]:
        for part in _parts([int(number) for number in ids]):
            yield from self.client.query(self.collection, filter=f"id in {part}", output_fields=["id", *fields])


def unfinished_sentence(address: str, there: int, wanted: int) -> str:
    return (
        f"{address} is not whole: a push was cut off or is still at work, and the engine holds {there:,} images where "
        f"the index has {wanted:,}. Finish it with `ccp index push INDEX {address}`."
    )


@dataclass(frozen=True)
class Pushed:
    """What a push did."""

    place: str  # the address with the collection
    sent: int
    deleted: int
    went_on: bool  # an earlier push had been cut off


def push(index: SearchIndex, text: str, report: Callable[[int, int], None] = lambda *_: None) -> Pushed:
    """Make a collection hold exactly what `index` holds.

    Only what is missing or differs is sent, batch by batch: a push that was cut off goes on where it stopped, and one
    after a change of the index sends the change.
    """
    address = Address.read(text)
    name = address.collection or _collection_name(index.name)
    client = connect(address.engine)
    header = read_header(client, name)
    if header is None and name in client.list_collections():
        raise UserError(
            f"{address.engine} has a collection {name!r} of another program; push to {address.engine}#OTHER."
        )
    if header is not None and header["model"]["digest"] != index.model.digest:
        raise UserError(
            f"{address.engine}#{name} holds vectors of the model {header['model']['name']} "
            f"({header['model']['digest'][:8]}), the index those of {index.model.name} ({index.model.digest[:8]}); "
            f"push to another collection: {address.engine}#OTHER."
        )
    # Before there are images: a collection without a description would be taken for another program's.
    _make_collection(client, name + ABOUT, 2, ["text"])  # Milvus has no collections without vectors
    _write_about(client, name, index, is_complete=False)
    _make_collection(client, name, index.model.dim, ["path", "label"], with_attributes=True)
    client.load_collection(name)  # an engine that was started again holds it, but answers no question about it
    ids = index.ids.tolist()
    sent, done = 0, 0
    for part in _parts(ids):
        sent += _send(client, name, index, part)
        done += len(part)
        report(done, len(ids))
    next_id = max(index.manifest.next_id, 0 if header is None else header["next_id"])
    extra = sorted(stored_ids(client, name, next_id) - set(ids))
    for part in _parts(extra):
        _with_patience(client.delete, name, filter=f"id in {part}")
    _write_about(client, name, index, is_complete=True)
    client.flush(name)
    client.close()
    went_on = header is not None and not header["complete"]
    return Pushed(f"{address.engine}#{name}", sent, len(extra), went_on)


def connect(engine: str) -> Any:
    """Make a client of the engine; MILVUS_TOKEN in the environment is what a cluster asks for."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it would report what it recovers from by itself
    try:
        import pymilvus
    except ImportError:
        raise UserError("A vector engine needs pymilvus: pip install 'ccp-dml[milvus]'.") from None
    for logger in ("pymilvus", "milvus_lite"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)  # what fails is said once, by us
    where = engine if "://" in engine else str(Path(engine).expanduser())
    try:
        return pymilvus.MilvusClient(where, token=os.environ.get("MILVUS_TOKEN", ""), timeout=20)
    except Exception as error:  # of gRPC, of the embedded engine, of pymilvus: whatever its version raises
        if "://" not in engine:
            raise UserError(
                f"{engine} cannot be opened ({first_line(error)}): an embedded engine serves one process at a time; "
                "stop the other one, or push to a Milvus server."
            ) from None
        raise UserError(f"The vector engine {engine} cannot be reached ({first_line(error)}).") from None


def read_header(client: Any, name: str) -> dict[str, Any] | None:
    """Read what a collection says about itself; None if it is not one of ours."""
    if name + ABOUT not in client.list_collections():
        return None
    client.load_collection(name + ABOUT)
    rows = client.query(name + ABOUT, filter="id == 0", output_fields=["text"])
    return from_json(rows[0]["text"]) if rows else None


def stored_ids(client: Any, name: str, next_id: int) -> set[int]:
    """List the ids below `next_id` that a collection holds."""
    found: set[int] = set()
    for first in range(0, next_id, IDS_PER_QUESTION):
        condition = f"id >= {first} and id < {min(first + IDS_PER_QUESTION, next_id)}"
        rows = _with_patience(client.query, name, filter=condition, output_fields=["id"])
        found.update(row["id"] for row in rows)
    return found


def _send(client: Any, name: str, index: SearchIndex, ids: list[int]) -> int:
    """Send the rows of a batch that the engine does not hold as they are; return how many."""
    rows = _with_patience(client.query, name, filter=f"id in {ids}", output_fields=["id", "vector", *FIELDS])
    # Vectors are compared, too: an index that was made anew counts its ids from 1, over images that may have changed.
    held = {row["id"]: (_item(row), row["vector"]) for row in rows}
    stored = zip(index.items(ids), index.vectors_of(ids).tolist(), strict=True)
    new = [asdict(item) | {"vector": vector} for item, vector in stored if held.get(item.id) != (item, vector)]
    if new:
        _with_patience(client.upsert, name, new)
    return len(new)


def _make_collection(
    client: Any, collection: str, dim: int, texts: Sequence[str], with_attributes: bool = False
) -> None:
    """Make a collection of vectors with these texts, of which a label may be missing, unless there is one."""
    from pymilvus import DataType

    if collection in client.list_collections():
        return
    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dim)
    for name in texts:
        schema.add_field(name, DataType.VARCHAR, max_length=65_535, nullable=name == "label")
    if with_attributes:
        schema.add_field("attributes", DataType.JSON)
    how = client.prepare_index_params()
    how.add_index("vector", index_type="FLAT", metric_type="L2")
    client.create_collection(collection, schema=schema, index_params=how, consistency_level="Strong")


def _write_about(client: Any, name: str, index: SearchIndex, is_complete: bool) -> None:
    values = index.attribute_values()
    text = json.dumps({"labels": index.label_counts(), "values": values})  # ASCII, so that a character is a byte
    pieces = [text[start : start + LONGEST_TEXT] for start in range(0, len(text), LONGEST_TEXT)]
    header = {
        "model": index.model.model_dump(),
        "complete": is_complete,
        "count": index.count,
        "attributes": list(values),
        "pieces": len(pieces),
        "next_id": index.manifest.next_id,
    }
    texts = [json.dumps(header), *pieces]
    rows = [{"id": number, "vector": [0.0, 0.0], "text": piece} for number, piece in enumerate(texts)]
    _with_patience(client.upsert, name + ABOUT, rows)


def _ranked(query: np.ndarray, hits: Sequence[Any], k: int) -> list[Hit]:
    rows = sorted((hit["entity"] | {"id": hit["id"]} for hit in hits), key=lambda row: row["id"])
    vectors = np.array([row["vector"] for row in rows], dtype=np.float32).reshape(-1, len(query))
    distances, places = exact_nearest(query[None], vectors, k)
    return [Hit(_item(rows[place]), float(distance)) for place, distance in zip(places[0], distances[0], strict=True)]


def _item(row: dict[str, Any]) -> Item:
    return Item(row["id"], row["path"], row["label"], row["attributes"] or {})


def _with_patience(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call, and call again after growing pauses if the engine does not answer; all our calls may be repeated."""
    for attempt in range(ATTEMPTS):
        try:
            return call(*arguments, **options)
        except Exception as error:  # of gRPC or of pymilvus
            if attempt == ATTEMPTS - 1:
                raise UserError(
                    f"The vector engine failed {ATTEMPTS} times ({first_line(error)}); the same command goes on "
                    "where it stopped."
                ) from None
            sleep(FIRST_PAUSE_SECONDS * 2**attempt)
    raise AssertionError("unreachable")


def _collection_name(index_name: str) -> str:
    """Name the collection in letters, digits and _, all that Milvus takes: birds.index -> birds."""
    stem = re.sub(r"\W", "_", index_name.removesuffix(".index"), flags=re.ASCII)
    return stem if re.match(r"[A-Za-z_]", stem) else f"index_{stem}"


def _parts(ids: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(ids), BATCH):
        yield ids[start : start + BATCH]
