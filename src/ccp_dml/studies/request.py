"""What a study was asked to do: its options, and the record in its folder that only the same command continues."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, Field, PositiveInt, ValidationError
from pydantic_core import PydanticCustomError

from ccp_dml.config.layers import flatten, parse_setting, parse_settings, wrong_value
from ccp_dml.config.recipes import STUDY, read_recipe, recipe_label
from ccp_dml.errors import UserError, did_you_mean, without_password
from ccp_dml.plans.plan import refuse_other_method
from ccp_dml.records.folder_request import STUDY_REQUEST

Options = TypeVar("Options", bound=BaseModel)


def refuse_repetition(values: tuple[int, ...]) -> tuple[int, ...]:
    """Raise if a value stands twice: both would be one folder, trained once and counted twice."""
    for value in values:
        if values.count(value) > 1:
            raise PydanticCustomError("twice", "name each value once, not {value} twice", {"value": value})
    return values


Varied = Annotated[tuple[PositiveInt, ...], Field(min_length=1), AfterValidator(refuse_repetition)]
"""The values that a study tries of one key."""


def read_options(model: type[Options], recipes: Sequence[str], settings: Sequence[str]) -> Options:
    """Read `[study]` of recipes, then of settings, into a `model`; the first wrong value becomes one sentence."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in [read_recipe(name) for name in recipes] + [parse_setting(text) for text in settings]:
        for key, value in flatten({STUDY: layer.tables.get(STUDY, {})}):
            if key.removeprefix(f"{STUDY}.") not in model.model_fields:
                known = [f"{STUDY}.{name}" for name in model.model_fields]
                near = did_you_mean(key, known) or f"; this study has {', '.join(known)}"
                raise UserError(f"Unknown key {key!r} ({layer.origin}){near}.")
            values[key], origins[key] = value, layer.origin
    try:
        return model.model_validate({key.removeprefix(f"{STUDY}."): value for key, value in values.items()})
    except ValidationError as error:
        raise wrong_value(error, values, origins, section=STUDY) from None


def is_study_setting(text: str) -> bool:
    return text.strip().startswith(f"{STUDY}.")


OWN_STORAGE = "in this folder"

MAY_GROW = ("study.repeats", "study.trials")
"""How many runs there are; those that are done stay what they are."""


@dataclass(frozen=True)
class StudyRequest:
    """A study, its data set and losses, and how thoroughly to do it."""

    study: str
    data: str  # a data set recipe
    losses: tuple[str, ...]
    is_full: bool  # the paper's settings, not those that finish in minutes
    settings: tuple[str, ...]  # KEY=VALUE, for all runs; `study.KEY` for the study itself
    storage: str | None = None  # a file or a database URL, where several machines share their trials

    @property
    def recipe(self) -> str:
        """Name the study's own recipe."""
        return f"study-{self.study}" + ("-full" if self.is_full else "")

    def recipes(self, method: str) -> tuple[str, ...]:
        """Name the layers of a run; the study's recipe comes last: it decides how long to train, on which classes."""
        refuse_other_method(self.data, method, self.run_settings)
        return (self.data, method, self.recipe)

    @property
    def run_settings(self) -> tuple[str, ...]:
        return tuple(text for text in self.settings if not is_study_setting(text))

    def options(self, model: type[Options]) -> Options:
        """Read the study's own values from its recipe and `--set study.KEY=VALUE`."""
        return read_options(model, [self.recipe], [text for text in self.settings if is_study_setting(text)])

    @property
    def default_folder(self) -> Path:
        """Name a folder that is always the same for the same study, so that the same command continues it."""
        return Path("runs") / f"{self.recipe}-{recipe_label(self.data)}"


def extend(folder: Path, wanted: StudyRequest) -> StudyRequest:
    """Give `wanted` at least the repeats or trials of the study in `folder`; raise on any other difference."""
    before = STUDY_REQUEST.read(folder)
    if before is None:
        return wanted
    try:
        for key, value in as_values(wanted).items():
            if key != "settings":
                STUDY_REQUEST.refuse_other(folder, key, before.get(key, "its default"), value)
        settings = tuple(before["settings"])
    except (KeyError, TypeError) as error:
        raise STUDY_REQUEST.damaged(folder, error) from None
    STUDY_REQUEST.refuse_other_settings(folder, settings, wanted.settings, MAY_GROW)
    return replace(wanted, settings=with_most_runs(wanted, settings))


def with_most_runs(wanted: StudyRequest, before: Sequence[str]) -> tuple[str, ...]:
    """Take from `before` what asks for more runs: results that are there stay on the page."""
    settings = wanted.settings
    usual = {f"{STUDY}.{name}": value for name, value in read_recipe(wanted.recipe).tables[STUDY].items()}
    for key in MAY_GROW:
        old, new = ({**usual, **parse_settings(texts)}.get(key) for texts in (before, settings))
        if isinstance(old, int) and isinstance(new, int) and old > new:  # what is no number is reported later
            others = (text for text in settings if text.partition("=")[0].strip() != key)
            settings = (*others, f"{key}={old}")
    return settings


def as_values(request: StudyRequest) -> dict[str, object]:
    return {
        "study": request.study,
        "data": request.data,
        "losses": list(request.losses),
        "full": request.is_full,
        "settings": list(request.settings),
        "storage": without_password(request.storage or OWN_STORAGE),
    }


def write_down(folder: Path, request: StudyRequest) -> None:
    STUDY_REQUEST.write(folder, as_values(request))
