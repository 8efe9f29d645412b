"""Write the reference pages of the site from the code: configuration keys, recipes, commands and the API.

Nothing of this is committed: `mkdocs build` asks for the pages by way of tools/site_hooks.py, so they cannot be stale.
"""

import inspect
import re
from typing import Any

import click
import typer
from import_graph import PACKAGE, ROOM_PURPOSES, SOURCE, modules, room_of
from pydantic import BaseModel

import ccp_dml
from ccp_dml.cli import app
from ccp_dml.config.description import KeyDescription, describe_arguments, describe_keys
from ccp_dml.config.loss_signatures import shipped_losses
from ccp_dml.config.recipes import RECIPE_KINDS, shipped_recipes
from ccp_dml.config.schema import Config

KIND_TITLES = {
    "datasets": ("Data sets", "The first recipe on the command line: what to train on, and the values tuned for it."),
    "modes": ("Modes", "Layered between the data set and the method: which part of the network is trained."),
    "methods": ("Methods", "What is trained; [methods](../methods.md) explains each."),
    "protocols": ("Protocols", "Layered by `ccp benchmark` after the method; see [protocols](../protocol.md)."),
    "studies": ("Studies", "Layered by `ccp study` after the method; see [studies](../studies.md)."),
}


def reference_pages() -> dict[str, str]:
    """Map the address of every generated page to its Markdown."""
    pages = {
        "reference/configuration.md": configuration_page(),
        "reference/recipes.md": recipes_page(),
        "reference/commands.md": commands_page(),
        "reference/api/index.md": public_api_page(),
    }
    return pages | {f"reference/api/{room}.md": room_page(room) for room in documented_rooms()}


# Configuration


def configuration_page() -> str:
    """Describe every key of the schema, and the arguments of every loss."""
    lines = [
        "# Configuration keys",
        "",
        "Every key of `--set KEY=VALUE`, of a recipe and of a run's `config.toml`. Defaults are those of the",
        "[MLRC protocol](../protocol.md); recipes replace them. `ccp config RECIPE... --explain` shows each value of a",
        "training and which recipe set it. An unknown key is an error that names the nearest known one.",
    ]
    described = describe_keys()
    for section, field in Config.model_fields.items():
        model = field.annotation
        assert isinstance(model, type)
        assert issubclass(model, BaseModel)
        lines += ["", f"## {section}", ""]
        if section == "loss":
            lines += ["The loss by name; every other key is an argument of its constructor, listed below.", ""]
        lines += ["| key | meaning | default | type |", "|---|---|---|---|"]
        lines += [key_row(described[f"{section}.{name}"]) for name in model.model_fields]
        if section == "loss":
            lines += loss_tables()
    return "\n".join(lines) + "\n"


def key_row(described: KeyDescription) -> str:
    kind = re.sub(r'("[^"]*")', r"`\1`", described.type)
    return f"| `{described.key}` | {cell(described.meaning)} | {cell(default_of(described.default))} | {cell(kind)} |"


def default_of(value: Any) -> str:
    if value is None:
        return "unset"
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`"


def loss_tables() -> list[str]:
    lines: list[str] = []
    for name, loss in shipped_losses().items():
        lines += ["", f"### {name}", "", loss.summary, "", "| key | default | type |", "|---|---|---|"]
        for one in describe_arguments(name, loss.parameters).values():
            lines.append(f"| `{one.key}` | {cell(default_of(one.default))} | {cell(one.type)} |")
    return [*lines, "", "`pml:NAME` takes the arguments of that loss of pytorch-metric-learning."]


def cell(text: str) -> str:
    """Escape what would end a cell of a Markdown table, and join lines; inside of `code` a bar ends nothing."""
    parts = " ".join(text.split()).split("`")
    return "`".join(part if place % 2 else part.replace("|", "\\|") for place, part in enumerate(parts))


# Recipes


def recipes_page() -> str:
    """Show every shipped recipe in full, kind by kind."""
    lines = [
        "# Recipes",
        "",
        "A recipe is a TOML file of settings. `ccp train cub c2-ccp` takes the data set's values, then the method's;",
        "what stands further right wins, and `--set` wins over all. A table `[losses.NAME]` holds values that apply",
        "only if a later recipe chooses that loss. A recipe of your own is named by its path.",
    ]
    for kind in RECIPE_KINDS:
        title, purpose = KIND_TITLES[kind]
        lines += ["", f"## {title}", "", purpose]
        for name, file in shipped_recipes(kind).items():
            summary, _, body = file.read_text(encoding="utf-8").partition("\n")
            lines += ["", f"### {name}", "", summary.lstrip("# "), "", "```toml", body.strip(), "```"]
    return "\n".join(lines) + "\n"


# Commands


def commands_page() -> str:
    """Describe every command with its arguments and options, from the help texts."""
    lines = [
        "# Commands",
        "",
        "Every command with its options, as `ccp COMMAND --help` shows them. Exit codes: 0 done, 2 a user's mistake",
        "(one sentence on standard error), 130 interrupted (the same command goes on), 1 anything else. With `--json`,",
        "standard output is [one JSON document](../runs.md#for-scripts) and nothing else.",
    ]
    return "\n".join([*lines, *describe_command(typer.main.get_command(app), "ccp")]) + "\n"


def describe_command(command: click.Command, name: str) -> list[str]:
    subcommands = getattr(command, "commands", None)
    if subcommands:
        return [line for key, sub in subcommands.items() for line in describe_command(sub, f"{name} {key}")]
    lines = ["", f"## {name}", "", inspect.cleandoc(command.help or "").replace("\f", "")]
    rows = [parameter_row(parameter) for parameter in command.params if not getattr(parameter, "hidden", False)]
    return [*lines, *(["", "| argument or option | meaning |", "|---|---|", *rows] if rows else [])]


def parameter_row(parameter: click.Parameter) -> str:
    metavar = parameter.metavar or ""
    shown = " ".join([*parameter.opts, metavar]) if parameter.param_type_name == "option" else metavar or parameter.name
    meaning = cell(getattr(parameter, "help", None) or "")
    default = parameter.default if parameter.param_type_name == "option" else None
    stated = "" if default is None or default is False else f" (default: `{default}`)"
    return f"| {cell(f'`{str(shown).strip()}`')} | {meaning}{stated} |"


# API


def public_api_page() -> str:
    """Document the names of `import ccp_dml as ccp`."""
    lines = [
        "# Public names",
        "",
        "What `import ccp_dml as ccp` offers: the parts of the method, for your own training loop. The losses are in",
        "[losses](losses.md). The other pages of this part document every module, room by room.",
        "",
        "| name | what it does |",
        "|---|---|",
    ]
    for name in ccp_dml.__all__:
        thing = getattr(ccp_dml, name)
        if not inspect.ismodule(thing):
            summary = (inspect.getdoc(thing) or "").split("\n", 1)[0]
            lines.append(f"| [`ccp.{name}`][{thing.__module__}.{thing.__qualname__}] | {cell(summary)} |")
    return "\n".join(lines) + "\n"


def documented_rooms() -> list[str]:
    """Name the rooms in the order of sight, left to right."""
    present = {room_of(path) for path in modules()}
    return [room for room in ROOM_PURPOSES if room in present]


def room_page(room: str) -> str:
    """Document every module of a room."""
    lines = [f"# {room}", "", ROOM_PURPOSES[room], ""]
    for path in modules():
        if room_of(path) == room and path.read_text(encoding="utf-8").strip():
            parts = path.relative_to(SOURCE).with_suffix("").parts
            name = ".".join([PACKAGE, *(part for part in parts if part != "__init__")])
            lines += [f"::: {name}", "    options:", "      heading_level: 2", ""]
    return "\n".join(lines)
