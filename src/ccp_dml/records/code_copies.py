"""Keep a copy of the user's own code beside what was trained with it, and run such copies only with consent."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ccp_dml.config.layers import values_of
from ccp_dml.config.schema import Config
from ccp_dml.errors import UserError
from ccp_dml.foundation import own_code
from ccp_dml.foundation.digests import file_digest
from ccp_dml.foundation.files import write_text
from ccp_dml.records import layout

GROUPS = {
    "data.name": own_code.DATASETS,
    "model.backbone": own_code.BACKBONES,
    "loss.name": own_code.LOSSES,
    "loss.miner": own_code.MINERS,
}
"""The keys that may name code, and the group of entry points that each looks in."""


def code_of(config: Config, keys: Collection[str] = tuple(GROUPS)) -> dict[str, str]:
    """Find what of a configuration is code of the user's own: key -> name."""
    values = values_of(config)
    named = {key: values[key] for key in GROUPS if key in keys and key in values}
    return {key: name for key, name in named.items() if own_code.is_own(name, GROUPS[key])}


def digests_of(config: Config) -> dict[str, str]:
    """Digest the code that a configuration names: key -> digest."""
    return {key: own_code.code_digest(name, GROUPS[key]) for key, name in code_of(config).items()}


def write_copies(folder: Path, config: Config) -> None:
    """Copy the code files that `config` names into `folder`; what is installed is not copied."""
    for key, name in code_of(config).items():
        if (file := _file(name)) is not None:
            write_text(layout.code_file(folder, key), file.read_text(encoding="utf-8"))


def name_of_copy(name: str, key: str) -> str:
    """Name the class in the copy of its file, relative to the folder of the copy; other names stay."""
    code = own_code.parse(name)
    return name if code is None or code.file is None else f"{layout.code_file(Path(), key)}:{code.attribute}"


def with_copies(
    folder: Path, config: Config, digests: Mapping[str, str], keys: Collection[str], *, trust_code: bool
) -> Config:
    """Let `keys` name the copies in `folder`, so that the code runs as it was; raise without the user's consent.

    Args:
        folder: of a run.
        config: its configuration.
        digests: of its code, as they were when it began; see `digests_of`.
        keys: whose code is about to be run.
        trust_code: the consent. What an installed package registers needs none: the user has installed it.
    """
    for key, name in code_of(config, keys).items():
        if own_code.parse(name) is not None and not trust_code:
            raise UserError(consent_needed(folder, key, name))
        copy = layout.code_file(folder, key) if _file(name) is not None else None
        refuse_other(folder, key, name, digests, copy)
        if copy is not None:
            section, _, entry = key.partition(".")
            config = config.with_values(**{section: {entry: f"{folder.resolve()}/{name_of_copy(name, key)}"}})
    return config


def consent_needed(folder: Path, key: str, name: str) -> str:
    """Ask for consent: a folder that somebody sent may hold any code."""
    copy = layout.code_file(folder, key)
    where = f"; a copy of it is {copy}" if _file(name) is not None else ""
    return (
        f"{folder} needs code that did not come with ccp-dml: {key} = {name}{where}. It is not run without your "
        "consent: read it, and if you trust it, add --trust-code (in Python: trust_code=True)."
    )


def refuse_other(folder: Path, key: str, name: str, digests: Mapping[str, str], file: Path | None) -> None:
    """Raise unless the code of `key`, in `file` or where `name` leads, is the code that `folder` began with."""
    if key not in digests:
        raise UserError(f"{folder} does not record which code {key} = {name} was; it cannot be repeated. Train again.")
    if file is not None and not file.is_file():
        raise UserError(f"{file} is missing, the copy of {name}; restore it, or train again.")
    found = file_digest(file) if file is not None else own_code.code_digest(name, GROUPS[key])
    if found != digests[key]:
        changed = name.rpartition(":")[0] if file is None else file
        raise UserError(f"{changed} was changed after {folder} began; restore it, or train again.")


def refuse_changed_code(folder: Path, config: Config, digests: Mapping[str, str], *, if_there: bool = False) -> None:
    """Raise if the code that `config` names is not the code that the run in `folder` began with.

    With `if_there`, a file that is no longer there is not missed: the run has its copy.
    """
    for key, name in code_of(config).items():
        file = _file(name)
        if if_there and file is not None and not file.is_file():
            continue
        if key not in digests or own_code.code_digest(name, GROUPS[key]) != digests[key]:
            copy = layout.code_file(folder, key)
            way = f"restore it from {copy}" if file is not None else "install the version that it began with"
            raise UserError(
                f"{key} = {name} is not the code that {folder} began with; {way}, or give --out another folder."
            )


def same_class(before: Any, after: Any) -> bool:
    """Tell whether two names mean a class of the same name in a file; `refuse_changed_code` compares the contents."""
    first, second = (own_code.parse(name) if isinstance(name, str) else None for name in (before, after))
    if first is None or second is None or first.file is None or second.file is None:
        return False
    return first.attribute == second.attribute


def _file(name: str) -> Path | None:
    code = own_code.parse(name)
    return None if code is None else code.file
