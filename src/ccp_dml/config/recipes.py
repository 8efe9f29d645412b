"""Names of recipes on the command line: shipped ones, or TOML files of one's own."""

from pathlib import Path

from ccp_dml.config.layers import read_recipe, shipped_recipes
from ccp_dml.errors import UserError, did_you_mean


def parse_methods(text: str) -> tuple[str, ...]:
    """`c2,c2-ccp`: names of shipped methods, or TOML files of one's own."""
    methods = tuple(part.strip() for part in text.split(","))
    shipped = shipped_recipes("methods")
    for method in methods:
        if not method:
            raise UserError(f"--methods {text!r} has an empty name; write names separated by commas, as in c2,c2-ccp.")
        if method not in shipped and not is_recipe_file(method):
            known = did_you_mean(method, list(shipped)) or "; `ccp list methods` names them all"
            raise UserError(f"--methods: there is no method {method!r}, shipped or as a TOML file{known}.")
    labels = [recipe_label(method) for method in methods]
    for label in labels:
        if labels.count(label) > 1:
            raise UserError(f"--methods names {label!r} more than once; name each method once.")
    return methods


def parse_data(names: str) -> str:
    """`cub`, or `cub,frozen`: a data set, and perhaps recipes that are layered onto it."""
    first, *others = names.split(",")
    shipped = shipped_recipes("datasets")
    if first not in shipped and not is_recipe_file(first):
        known = did_you_mean(first, list(shipped)) or f"; there are {', '.join(shipped)}"
        raise UserError(f"--data: there is no data set {first!r}, shipped or as a TOML file{known}.")
    for name in others:
        read_recipe(name)
    return names


def parse_losses(text: str) -> tuple[str, ...]:
    """`c2,ms`: losses that there are methods of, plain, with proxies and with CCP."""
    losses = tuple(part.strip() for part in text.split(","))
    known = [name.removesuffix("-ccp") for name in shipped_recipes("methods") if name.endswith("-ccp")]
    for loss in losses:
        if loss not in known:
            raise UserError(f"--loss: there is no loss {loss!r} with CCP; there are {', '.join(known)}.")
        if losses.count(loss) > 1:
            raise UserError(f"--loss names {loss!r} more than once; name each loss once.")
    return losses


def is_recipe_file(name: str) -> bool:
    return name.endswith(".toml") and Path(name).is_file()


def recipe_label(recipe: str) -> str:
    """What tables and folders call a recipe: a file of one's own goes by its name without the ending."""
    return "-".join(Path(name).stem if name.endswith(".toml") else name for name in recipe.split(","))
