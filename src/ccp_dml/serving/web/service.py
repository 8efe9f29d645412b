"""What the server does, without the web around it: embed, search, compare, describe, show."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from PIL import Image
from pydantic import BaseModel, Field, ValidationError

from ccp_dml.reports.certificate_words import set_names
from ccp_dml.serving.model import EmbeddingModel
from ccp_dml.serving.search.gallery import Gallery, Hit, Item
from ccp_dml.serving.web.index_overview import Overview
from ccp_dml.serving.web.results_page import small_copy
from ccp_dml.serving.web.served_gallery import ServedGallery, Snapshot
from ccp_dml.serving.web.uploads import Refusal, Sent, read_picture

SIDES = {"small": 160, "large": 900}
PICTURES_KEPT = 4096
PICTURE_FIELDS = ("image", "a", "b")

Fields = TypeVar("Fields", bound=BaseModel)


class SearchFields(BaseModel):
    """What a search asks for, besides the picture."""

    id: int | None = Field(None, description="Search with this indexed image instead of a picture.")
    k: int = Field(20, ge=1, le=500, description="How many results.")
    where: str | None = Field(None, max_length=2000, description='A condition, such as species = "wren".')
    within: float | None = Field(None, gt=0, le=1, description="Only what is the same at this false-match rate.")


class SameFields(BaseModel):
    false_match_rate: float | None = Field(None, gt=0, le=1, description="None: the one that was certified.")


class Service:
    """Answers requests about a model and the gallery that was embedded with it, if there is one."""

    def __init__(self, model: EmbeddingModel, gallery: Gallery | None, with_tsne: bool) -> None:
        self.model = model
        self._served = None if gallery is None else ServedGallery(gallery, with_tsne)
        self.picture = lru_cache(PICTURES_KEPT)(_encoded)

    @property
    def has_gallery(self) -> bool:
        return self._served is not None

    def latest(self) -> Snapshot:
        """Give the newest state of the gallery; what a request asks of it, it asks of one."""
        if self._served is None:
            raise Refusal(409, "This server has a model but no index; start it with `ccp serve INDEX` to search.")
        return self._served.latest()

    @property
    def overview(self) -> Overview:
        return self.latest().overview

    def health(self) -> dict[str, Any]:
        model, about = self.model, None
        if self._served is not None:
            latest = self._served.latest()
            about = {"name": latest.gallery.name, "images": latest.gallery.count, "warning": latest.warning}
        return {
            "status": "ok",
            "model": {"name": model.name, "digest": model.digest, "dim": model.dim},
            "index": about,
        }

    def embed(self, image: Image.Image) -> np.ndarray:
        """Compute the vector (1, D) of one picture, as the index has them."""
        return self.model.comparable(self.model.embed([image], batch_size=1))

    def vectors(self, sent: Sent) -> dict[str, Any]:
        refuse_unknown(sent.fields, [])
        if not sent.pictures:
            raise Refusal(400, "Send at least one picture, in the field 'image'.")
        vectors = [self.embed(read_picture(content, kind))[0].tolist() for _, content, kind in sent.pictures]
        return {"vectors": vectors, "dim": self.model.dim, "model": self.model.digest}

    def search(self, sent: Sent) -> dict[str, Any]:
        latest = self.latest()
        gallery = latest.gallery
        fields = _checked(SearchFields, sent.fields)
        answer: dict[str, Any] = {"version": gallery.version, "warning": latest.warning}
        threshold = None if fields.within is None else self.model.match_threshold(fields.within)
        given = len(sent.pictures) + (fields.id is not None)
        if given != 1:
            raise Refusal(
                400,
                f"Send one picture in the field 'image', or the id of an indexed one in the field 'id'; {given} came.",
            )
        if fields.id is not None:
            item = item_of(gallery, fields.id)
            vectors = gallery.vectors_of([fields.id])
            answer["query"] = {"id": item.id, "path": short_path(item.path), "label": item.label}
        else:
            ((_, content, kind),) = sent.pictures
            vectors = self.embed(read_picture(content, kind))
        (hits,) = gallery.search(vectors, fields.k, fields.where, [] if fields.id is None else [fields.id])
        answer["notes"] = gallery.notes_on(fields.where) if fields.where is not None and not hits else []
        if threshold is not None:
            hits = [hit for hit in hits if hit.distance <= threshold.beta]
            answer |= {"threshold": threshold.beta, "promise": threshold.promise}
        return answer | {"results": [_result(hit) for hit in hits]}

    def same(self, sent: Sent) -> dict[str, Any]:
        if len(sent.pictures) != 2:
            raise Refusal(400, f"Send two pictures, in the fields 'a' and 'b'; {len(sent.pictures)} came.")
        fields = _checked(SameFields, sent.fields)
        one, two = (read_picture(content, kind) for _, content, kind in sent.pictures)
        return asdict(self.model.same(one, two, fields.false_match_rate))

    def facts(self) -> dict[str, Any]:
        """Collect what the page shows before anybody searches."""
        latest = self.latest()
        gallery = latest.gallery
        return {
            "name": gallery.name,
            "version": gallery.version,
            "count": gallery.count,
            "model": self.model.name,
            "labels": gallery.label_counts(),
            "attributes": gallery.attribute_values(),
            "thresholds": self.thresholds(),
            "warning": latest.warning,
        }

    def thresholds(self) -> list[dict[str, Any]]:
        """List the distances for all false-match rates of the certificate, ascending; none without a certificate."""
        certificate = self.model.certificate
        if certificate is None or certificate["threshold"] is None:
            return []
        rates = {point["wanted"] for point in certificate["sets"]["validation"]["trade_off"]}
        certified = certificate["threshold"]["wanted"]
        rates = {rate for rate in rates if rate < 0.999} | {certified}
        found = [(rate, self.model.match_threshold(rate)) for rate in sorted(rates)]
        return [
            {
                "rate": rate,
                "distance": one.beta,
                "promise": one.promise,
                "certified": rate == certified,
                "measured_on": set_names(certificate)["validation"],
            }
            for rate, one in found
        ]

    def image(self, number: int, size: str) -> bytes:
        side = SIDES.get(size)
        if side is None:
            raise Refusal(404, f"There is no size {size!r}; ask for {' or '.join(SIDES)}.")
        path = Path(item_of(self.latest().gallery, number).path)
        try:
            return self.picture(path, path.stat().st_mtime_ns, side)
        except Exception:  # missing, or whatever a decoder runs into
            raise Refusal(404, f"The file of image {number} is missing or cannot be read.") from None


def item_of(gallery: Gallery, number: int) -> Item:
    """Look an indexed image up; a Refusal if there is none of this id."""
    try:
        if not 0 < number < 1 << 63:  # what an id can be
            raise KeyError(number)
        (item,) = gallery.items([number])
    except KeyError:
        raise Refusal(404, f"The index has no image with the id {number}.") from None
    return item


def short_path(path: str) -> str:
    """Shorten a path to a file's name with its folder's: enough to recognise it, without telling where it is stored."""
    return "/".join(Path(path).parts[-2:])


def _result(hit: Hit) -> dict[str, Any]:
    item = hit.item
    return {
        "id": item.id,
        "path": short_path(item.path),
        "label": item.label,
        "distance": hit.distance,
        "attributes": item.attributes,
        "image": f"/images/{item.id}",
    }


def _encoded(path: Path, mtime_ns: int, side: int) -> bytes:  # noqa: ARG001 - a changed file is another picture
    return small_copy(path, side)


def _checked(kind: type[Fields], given: Mapping[str, Any]) -> Fields:
    """Check the fields of a form; empty ones count as left out, as forms send them."""
    filled = {name: value for name, value in given.items() if value != ""}
    refuse_unknown(filled, list(kind.model_fields))
    try:
        return kind.model_validate(filled)
    except ValidationError as error:
        raise Refusal(422, sentence_of(error.errors()[0])) from None


def refuse_unknown(given: Mapping[str, Any], known: list[str]) -> None:
    """Refuse fields that nobody reads: a mistyped one would be taken for its default."""
    for name in given:
        if name in PICTURE_FIELDS:
            raise Refusal(422, f"The field {name!r} came as text, not as a file; with curl, write -F {name}=@FILE.")
        if name not in known:
            there = f"there are {', '.join(known)}" if known else "send pictures alone"
            raise Refusal(422, f"There is no field {name!r}; {there}.")


def sentence_of(error: Mapping[str, Any]) -> str:
    """Say what pydantic found wrong with a field."""
    where = ".".join(str(part) for part in error["loc"] if part not in ("path", "query", "body"))
    return f"{where or 'The request'}: {error['msg'][0].lower() + error['msg'][1:]}."
