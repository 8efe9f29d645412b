"""Layer recipes, TOML files and `--set KEY=VALUE` into one checked configuration that knows where its values came from.

Also here: the sentence about a wrong value, and what differs between two configurations.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, time
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ccp_dml.config.loss_signatures import shipped_losses
from ccp_dml.config.recipes import STUDY, Layer, Tables, recipe_layers, shipped_recipes
from ccp_dml.config.schema import WITH_PROXIES, Config, fields_by_key
from ccp_dml.errors import UserError, did_you_mean
from ccp_dml.foundation import own_code
from ccp_dml.foundation.files import from_toml

SHORT_NUMBER = re.compile(r"[+-]?(\d+\.|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
"""`.5` and `5.`, which people type and TOML does not know."""

THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+|\d{1,3}(\.\d{3}){2,}")
"""`1,000` and `1.000.000`, in which people separate thousands; of a number with decimals it could be either."""

DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")

MUST_BE = "it must be "

ARGUMENT = re.compile(r"`([a-z_]+)`")
"""How the message of a part names an argument; see `naming_keys`."""

OF_OWN_CLASSES = ("data.args.", "model.args.", "loss.miner_args.")
"""How keys begin that are arguments of classes of one's own; what follows is checked against their signatures."""

SETTING = "--set "
"""How the origin of what was given on the command line begins."""

PATHS = frozenset({"data.root", "data.path", "model.weights", "run.cache"})
"""Keys that name files: they are kept absolute, so that a run can be continued and scored from any folder."""

FOR_LOSSES = "losses"
"""A table that only recipes have: what a data set or a mode wants with a loss that a later layer may choose."""


@dataclass(frozen=True)
class Resolved:
    """The configuration, for every dotted key that a layer set the origin of the value in force, and the layers."""

    config: Config
    origins: dict[str, str]
    layers: tuple[Layer, ...] = ()


def resolve(recipes: Sequence[str], settings: Sequence[str] = (), seed: int | None = None) -> Resolved:
    """Layer recipes left to right, then `--set` settings, then the seed."""
    given = [parse_setting(text) for text in settings]  # first: `--set KEY VALUE` would make a recipe of VALUE
    read = (layer for name in recipes for layer in recipe_layers(name))
    layers = [*(Layer(layer.origin, without(layer.tables, STUDY)) for layer in read), *given]
    if seed is not None:
        layers.append(Layer("--seed", {"run": {"seed": seed}}))
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    places: dict[str, int] = {}  # the number of the layer that set a key

    def put(key: str, value: Any, place: int) -> None:
        values[key] = absolute(value) if key in PATHS else value
        origins[key], places[key] = layers[place].origin, place

    for place, layer in enumerate(layers):
        for key, value in flatten(without(layer.tables, FOR_LOSSES)):
            refuse_unknown(key, layer.origin)
            put(key, value, place)
    chosen = values.get("loss.name", Config().loss.name)
    has_proxies = values.get("ccp.mode") in WITH_PROXIES  # PROFS has the same keys, and a pace of its own
    for place, layer in enumerate(layers):
        for loss_name, key, value in wishes(layer):
            if loss_name != chosen or (key.startswith("ccp.") and not has_proxies):
                continue
            if goes_before(place, layer.origin, places.get(key), origins.get(key)):
                put(key, value, place)
    return Resolved(validate(values, origins), origins, tuple(layers))


def absolute(value: Any) -> Any:
    """Make a path absolute, seen from where the command runs; what is no path, or an empty one, is reported later.

    In a file, a folder that is called 2024 may stand without quotes.
    """
    value = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    if not isinstance(value, str) or not value:
        return value
    try:
        return str(Path(value).expanduser().absolute())
    except (RuntimeError, ValueError):  # a home that nobody has, or a name that no disk could hold
        return value


def goes_before(place: int, wished_by: str, set_at: int | None, set_by: str | None) -> bool:
    """Tell whether a wish of the layer at `place` replaces a value that the layer at `set_at` has set, if any has.

    A data set or mode knows better than a shipped method what suits it. Who writes a file of their own knows best: only
    the file itself, or a later one of theirs, replaces what it says.
    """
    if set_at is None or set_at == place or set_by in shipped_recipes("methods"):
        return True
    return set_at < place and (set_by in shipped_recipes() or wished_by not in shipped_recipes())


def wishes(layer: Layer) -> Iterator[tuple[str, str, Any]]:
    """Yield what a layer wants with certain losses: the loss, the key, the value.

    In the table of a loss, `margin` is an argument of the loss, and `optim.proxy_lr_factor` any other key.
    """
    tables = layer.tables.get(FOR_LOSSES, {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise UserError(f"{FOR_LOSSES} ({layer.origin}) must hold a table for each loss, as in [{FOR_LOSSES}.c2].")
    for loss_name, table in tables.items():
        refuse_unknown_loss(loss_name, layer.origin)
        for name, value in flatten(table):
            key = name if "." in name else f"loss.{name}"
            refuse_unknown(key, layer.origin)
            if key == "loss.name":
                raise UserError(f"{FOR_LOSSES}.{loss_name} ({layer.origin}) cannot choose a loss; remove `name`.")
            yield loss_name, key, value


def refuse_unknown_loss(name: str, origin: str) -> None:
    """Raise for a table of a loss that there is not: what it says would never be read."""
    known = shipped_losses()
    is_library_s = name.startswith(f"{own_code.RESERVED}:")
    if name not in known and not is_library_s and not own_code.is_own(name, own_code.LOSSES):
        raise UserError(
            f"There is no loss {name!r} ({origin}, [{FOR_LOSSES}.{name}]){did_you_mean(name, list(known))}."
        )


def without(tables: Tables, left_out: str) -> Tables:
    return {name: table for name, table in tables.items() if name != left_out}


def validate(values: dict[str, Any], origins: dict[str, str]) -> Config:
    """Make a `Config` of dotted keys; the first wrong value becomes one sentence."""
    tables: Tables = {}
    for key, value in values.items():
        *path, name = key.split(".", 2)
        table = tables
        for part in path:
            table = table.setdefault(part, {})
        table[name] = value
    try:
        return Config.model_validate(tables)
    except ValidationError as error:
        raise wrong_value(error, values, origins) from None


def wrong_value(
    error: ValidationError, values: Mapping[str, Any], origins: Mapping[str, str] | None = None, section: str = ""
) -> UserError:
    """Say in one sentence what pydantic found wrong first: which key, its value, where that was written, and why.

    Args:
        error: of a model of the whole configuration, or of one `section` of it.
        values: what was given, by dotted key.
        origins: where each was given, by dotted key; None: do not say.
    """
    first, *others = error.errors()
    place = (str(first["loc"][0]),) if section else tuple(map(str, first["loc"][:2]))
    key = ".".join([section, *place] if section else place)
    is_element = len(first["loc"]) > len(place)
    if first["type"] == "missing" and not is_element:
        return UserError(f"{key} is not set and has no default: --set {key}=VALUE.")
    origin = "" if origins is None else f" ({origins.get(key, 'default')})"
    reasons = [plain_reason(first)]
    if first["type"] == "missing":  # of a list with a fixed number of them, the last one tells how many
        elements = [int(one["loc"][-1]) for one in error.errors() if one["loc"][:-1] == first["loc"][:-1]]
        reasons = [f"it must be a list of {max(elements) + 1} numbers"]
    for other in others:  # what takes a number or a word has failed as both: pydantic appends the name of the kind
        if other["loc"][:-1] == place and isinstance(other["loc"][-1], str) and reasons[0].startswith(MUST_BE):
            reasons.append(plain_reason(other).removeprefix(MUST_BE))
    return UserError(f"{key} = {values.get(key)!r}{origin}: {' or '.join(reasons)}.")


def plain_reason(error: Mapping[str, Any]) -> str:
    """Say why a value is wrong, in the words of a person where pydantic's are those of a parser."""
    kind, value, limits = str(error["type"]), error["input"], error.get("ctx", {})
    if kind.startswith("int_") and isinstance(value, str) and THOUSANDS.fullmatch(value):
        return f"write it without separators, as in {re.sub('[,.]', '', value)}"
    if kind.startswith(("int_", "float_")) and isinstance(value, str) and DECIMAL_COMMA.fullmatch(value):
        return f"decimals are written with a point, as in {value.replace(',', '.')}"
    if kind.startswith("int_"):
        return "it must be a whole number"
    if kind in ("float_parsing", "float_type"):
        return "it must be a number"
    if kind.startswith("bool_"):
        return "it must be true or false"
    if kind == "greater_than_equal":
        return f"it must be at least {limits['ge']}"
    if kind == "less_than_equal":
        return f"it must be at most {limits['le']}"
    if kind in ("greater_than", "less_than"):
        return f"it must be {kind.replace('_', ' ')} {limits.get('gt', limits.get('lt'))}"
    if kind == "tuple_type":
        return "it must be a list, as in [1, 2]"
    if kind == "too_long" and limits.get("field_type") == "Tuple":
        return f"it must be a list of {limits['max_length']} numbers, not of {limits['actual_length']}"
    if kind == "literal_error":
        return f"it must be {limits['expected']}"
    return str(error["msg"])[0].lower() + str(error["msg"])[1:]


def differing(
    before: Mapping[str, Any], after: Mapping[str, Any], but_for: Collection[str] = ()
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the keys whose values differ, in order, with both values; None stands for a key that one side lacks."""
    for key in sorted(before.keys() | after.keys()):
        if key not in but_for and before.get(key) != after.get(key):
            yield key, before.get(key), after.get(key)


def flatten(tables: Tables, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys and values of nested tables."""
    for name, value in tables.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def values_of(config: Config) -> dict[str, Any]:
    """List what a configuration sets, by dotted keys such as `loss.name`."""
    return dict(flatten(config.as_tables()))


def known_keys() -> list[str]:
    return list(fields_by_key())


def keys_called(name: str) -> list[str]:
    """List the keys that `name` may mean: itself, or those of this name in any section, as optim.lr for lr."""
    keys = known_keys()
    return [name] if name in keys else [key for key in keys if key.split(".")[1] == name]


def refuse_unknown(key: str, origin: str) -> None:
    """Raise for a key that no section has; a loss's arguments are checked later, against its signature."""
    keys = known_keys()
    if f"{key}." in OF_OWN_CLASSES:
        raise UserError(f"{key} ({origin}) is a table: set its entries one by one, as in {key}.NAME=VALUE.")
    if key in keys or (key.startswith("loss.") and key.count(".") == 1):
        return
    if key.startswith(OF_OWN_CLASSES) and key.count(".") == 2:
        return
    raise UserError(f"Unknown key {key!r} ({origin}){did_you_mean(key, keys)}; `ccp config` lists every key.")


@contextmanager
def naming_keys(*sections: str) -> Iterator[None]:
    """Let errors of parts speak of keys: an argument that they name in backticks (`root`) becomes data.root.

    Parts know no configuration; `sections` are those that their arguments come from.
    """
    keys = {name: key for key in known_keys() for section, name in [key.split(".")] if section in sections}
    try:
        yield
    except UserError as error:
        told = ARGUMENT.sub(lambda found: keys.get(found[1], found[0]), str(error))
        if told == str(error):
            raise
        raise UserError(told) from error


def parse_setting(text: str) -> Layer:
    """Parse `optim.lr=1e-4`; the value is read as TOML if it is TOML, otherwise as a plain string."""
    key, equals, value = text.partition("=")
    if not equals or "." not in key:
        meant = (keys_called(key.strip()) or ["optim.lr"])[0]
        example = f"{meant}={value or ('1e-4' if meant == 'optim.lr' else 'VALUE')}"
        raise UserError(
            f"--set {text}: expected KEY=VALUE with a dotted key and no space around =, for example --set {example}."
        )
    section, _, name = key.strip().partition(".")
    parsed = parse_value(value.strip())
    if key.strip() in PATHS and not isinstance(parsed, str):
        parsed = value.strip()  # a folder may be called 2024, or 1e3
    return Layer(f"{SETTING}{key.strip()}", {section: {name: parsed}})


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Parse several settings: the values by dotted key. Of a key that is set twice, the last one counts."""
    return {key: value for text in texts for key, value in flatten(parse_setting(text).tables)}


def parse_value(text: str) -> Any:
    """Read a value as TOML where it is TOML, otherwise as a plain string."""
    try:
        value = from_toml(f"value = {text}")["value"]
    except ValueError:  # a number of 5,000 digits is none, either
        return float(text) if SHORT_NUMBER.fullmatch(text) else text
    return text if isinstance(value, date | time) else value  # no setting is a date, but a folder may be called so
