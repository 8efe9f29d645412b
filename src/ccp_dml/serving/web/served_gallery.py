"""The gallery that a server answers from: opened again when its index has changed on disk."""

import logging
import threading
from dataclasses import dataclass, replace
from time import monotonic

from ccp_dml.errors import UserError
from ccp_dml.serving.search.gallery import Gallery
from ccp_dml.serving.web.index_overview import Overview

SECONDS_BETWEEN_ATTEMPTS = 5.0
"""An index that cannot be opened is not tried with every request: to compare its files takes time."""


@dataclass(frozen=True)
class Snapshot:
    """One state of the gallery; a request is answered from a single one, whatever a writer does meanwhile."""

    gallery: Gallery
    overview: Overview
    warning: str | None
    """What to know before results are trusted, in a sentence."""


class ServedGallery:
    """Follows the index on disk. One that cannot be opened, or is of another model, leaves the last state in use."""

    def __init__(self, gallery: Gallery, with_tsne: bool) -> None:
        self._with_tsne = with_tsne
        self._digest = gallery.model.digest
        self._latest = self._snapshot(gallery)
        self._one_at_a_time = threading.Lock()
        self._not_before = 0.0

    def latest(self) -> Snapshot:
        """Give the newest state that can be used."""
        with self._one_at_a_time:  # who comes while it is being opened waits, and never sees an older state than others
            self._follow()
            return self._latest

    def _follow(self) -> None:
        if monotonic() < self._not_before:
            return
        gallery = self._latest.gallery
        try:
            newer = gallery.reopened()
        except (UserError, OSError) as error:
            self._stay(f"{gallery.name} has changed and cannot be opened: {error}")
            return
        if newer is None:
            self._latest = replace(self._latest, warning=gallery.warning)
        elif newer.model.digest != self._digest:
            self._stay(
                f"{gallery.name} was made again, with another model ({newer.model.name}): start `ccp serve` again "
                "to search it."
            )
        else:
            self._latest = self._snapshot(newer)

    def _stay(self, reason: str) -> None:
        """Keep the last state, and say why."""
        warning = f"{reason} Until then, results are from the index as it was before."
        if warning != self._latest.warning:
            logging.getLogger(__name__).warning(warning)
        self._latest = replace(self._latest, warning=warning)
        self._not_before = monotonic() + SECONDS_BETWEEN_ATTEMPTS

    def _snapshot(self, gallery: Gallery) -> Snapshot:
        return Snapshot(gallery, Overview(gallery, self._with_tsne), gallery.warning)
