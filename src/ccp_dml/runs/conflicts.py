"""Refuse settings that contradict each other, the loss or the data, in one sentence each, before a run begins."""

import inspect

from torch import nn

from ccp_dml.config.schema import CcpConfig, Config
from ccp_dml.errors import UserError
from ccp_dml.foundation.process_group import Processes
from ccp_dml.losses import LOSSES
from ccp_dml.losses.metrix import TakesMixtures
from ccp_dml.losses.pml import PmlLoss
from ccp_dml.proxies import pool_size
from ccp_dml.runs.arguments import LossContext


def refuse_conflicts(config: Config, loss: nn.Module, context: LossContext, processes: Processes) -> None:
    """Raise if `loss` cannot be minimised as the settings say: against the batch, proxies, a memory or mixtures."""
    refuse_rows_that_decay(config)
    if config.run.proxies_over_processes:
        refuse_undividable(config, loss, context.classes, processes)
    refuse_without_pairs(config)
    if config.metrix.enabled:
        refuse_unmixable(config, loss)
    elif config.ccp.mode == "representatives":
        refuse_without_representatives(config, loss)
    elif config.ccp.has_proxies:
        refuse_unfit_for_proxies(config, loss, context)
    elif config.xbm.enabled:
        refuse_without_references(loss, config.loss.name, context, "xbm.enabled=true")


def refuse_without_pairs(config: Config) -> None:
    """Raise if a loss compares images inside the batch alone, and no two of them are of one class."""
    compares_in_batch = config.metrix.enabled or (config.ccp.mode == "off" and not config.xbm.enabled)
    if compares_in_batch and config.train.images_per_class == 1 and config.loss.name in LOSSES:
        raise UserError(
            "train.images_per_class=1 leaves no two images of one class in a batch, and the loss "
            f"{config.loss.name} compares with nothing else: set it to 2 or more."
        )


def refuse_unfit_for_proxies(config: Config, loss: nn.Module, context: LossContext) -> None:
    """Raise if proxies cannot be compared with the batch, or chosen, as the settings say."""
    if config.xbm.enabled:
        raise UserError("xbm.enabled and ccp.mode are both set: references are either a memory or proxies.")
    refuse_without_references(loss, config.loss.name, context, f"ccp.mode={config.ccp.mode}")
    refuse_apart_from_embeddings(config.model.normalise, loss)
    if config.ccp.proxy_length == "unit" and config.ccp.space == "raw":
        raise UserError(
            "ccp.proxy_length=unit needs ccp.space=normalised: proxies of unit length are near no image in the raw "
            "space."
        )
    if config.ccp.mode == "alternating" and config.ccp.until == "stale":
        reason = "ccp.until=stale measures in covering radii, and they are 0"
        refuse_whole_pool(config.ccp, reason, "ccp.until=stall")
    if config.ccp.pair_weight == "balanced" and config.train.images_per_class == 1:
        raise UserError(
            "ccp.pair_weight=balanced compares proxies with the pairs inside the batch, and with "
            "train.images_per_class=1 none of these is of one class; set it to 2 or more, or ccp.pair_weight=0."
        )
    if config.ccp.proxies_by_need:
        reason = "ccp.proxies_by_need has nothing to choose among"
        refuse_whole_pool(config.ccp, reason, "ccp.proxies_by_need=false")


def refuse_without_references(loss: nn.Module, name: str, context: LossContext, setting: str) -> None:
    """Raise unless `loss` can be measured against references, which `setting` needs."""
    if "ref_embeddings" not in inspect.signature(loss.forward).parameters:
        raise UserError(
            f"loss.name = {name!r} compares samples with proxies of its own and does not go together with {setting}; "
            "choose a pair loss such as c2, or leave that setting out."
        )
    if isinstance(loss, PmlLoss):
        try:
            loss.rehearse(references=True, classes=context.classes, dim=context.dim)
        except ValueError as error:
            raise UserError(
                f"loss.name = {name!r}: {error}; use it with ccp.mode=off and xbm.enabled=false, or take another loss."
            ) from None


def refuse_apart_from_embeddings(of_network: str, loss: nn.Module) -> None:
    """Raise if a loss would leave proxies, which are stored as embedded (D7), where the network puts no embedding."""
    of_loss = getattr(loss, "normalise", None)  # None: one of a user's own, who knows
    if of_loss == "none" or (of_loss, of_network) == ("clip", "l2"):
        raise UserError(
            f"Proxies are normalised by the loss, embeddings by the network, and loss.normalise={of_loss} would leave "
            f"them in different places than model.normalise={of_network}; set loss.normalise={of_network}."
        )


def refuse_whole_pool(ccp: CcpConfig, reason: str, instead: str) -> None:
    """Raise if every image of a pool becomes a proxy."""
    pool = pool_size(ccp.pool_per_class, ccp.proxies_per_class)
    if pool <= ccp.proxies_per_class:
        raise UserError(
            f"{reason}: set ccp.pool_per_class, which is {ccp.pool_per_class} and makes a pool of {pool}, above "
            f"ccp.proxies_per_class, which is {ccp.proxies_per_class}; or set {instead}."
        )


def refuse_unmixable(config: Config, loss: nn.Module) -> None:
    """Raise unless the loss takes mixtures, and nothing but the batch is compared."""
    if config.ccp.mode != "off" or config.xbm.enabled:
        other = f"ccp.mode={config.ccp.mode}" if config.ccp.mode != "off" else "xbm.enabled=true"
        raise UserError(f"metrix.enabled and {other} are both set, but mixtures are made inside the batch alone.")
    if not isinstance(loss, TakesMixtures):
        raise UserError(
            f"metrix.enabled is set, but loss.name = {config.loss.name!r} does not know what a reference costs that is "
            "partly positive; c1 and ms do, and losses of your own with a method `of_mixtures`."
        )


def refuse_without_representatives(config: Config, loss: nn.Module) -> None:
    """Raise if batches would not compare images with representatives, or nobody could tell who represents a class."""
    mode = "ccp.mode=representatives"
    if config.ccp.until != "steps":
        raise UserError(
            f"{mode}: representatives change after a fixed number of steps, and ccp.until={config.ccp.until} ends a "
            "problem at any step; set ccp.until=steps."
        )
    if config.train.images_per_class < 2:
        raise UserError(
            f"{mode} with train.images_per_class=1 would train on representatives alone; set it to 2 or more."
        )
    if config.xbm.enabled:
        raise UserError(
            f"{mode} and xbm.enabled are both set: a memory compares with whatever was in past batches, not with "
            "representatives; leave one of them out."
        )
    if any(value.ndim > 1 for value in loss.parameters()):
        raise UserError(
            f"loss.name = {config.loss.name!r} compares samples with proxies of its own, never with representatives, "
            f"and does not go together with {mode}; choose a pair loss such as c2, or leave that setting out."
        )


def refuse_rows_that_decay(config: Config) -> None:
    """Raise if proxies should be visited only when they move, and something moves them all in every step."""
    if not config.optim.proxies_by_rows:
        return
    if not config.ccp.has_proxies:
        raise UserError("optim.proxies_by_rows needs proxies that CCP reselects: set ccp.mode, or leave it out.")
    if config.optim.decay_proxies and config.optim.weight_decay:
        raise UserError(
            "optim.proxies_by_rows: weight decay moves every proxy in every step; set optim.decay_proxies=false."
        )


def refuse_undividable(config: Config, loss: nn.Module, classes: int, processes: Processes) -> None:
    """Raise if the proxies cannot be divided among processes, each of which has those of its own classes."""
    setting = "run.proxies_over_processes"
    if not config.ccp.has_proxies:
        raise UserError(f"{setting} needs proxies that CCP reselects: set ccp.mode, or leave it out.")
    if not takes_holders(loss):
        able = ", ".join(name for name, kind in LOSSES.items() if takes_holders(kind))
        raise UserError(
            f"{setting}: loss.name = {config.loss.name!r} has to see all proxies at once; choose one of {able}, or set "
            f"{setting}=false."
        )
    if config.ccp.proxies_by_need:
        raise UserError(f"{setting} gives every class as many proxies; set ccp.proxies_by_need=false.")
    if config.run.precision == "16-mixed":
        raise UserError(
            f"{setting}: with run.precision=16-mixed, a process may skip a step that others take; use bf16-mixed."
        )
    if classes < processes.count:
        raise UserError(f"{setting}: {processes.count} processes share {classes} classes; start fewer processes.")


def takes_holders(loss: nn.Module | type[nn.Module]) -> bool:
    """Tell whether a loss can be computed by processes of which each holds a part of the references."""
    return "holders" in inspect.signature(loss.forward).parameters


def refuse_staleness_without_radius(config: Config, largest_class: int) -> None:
    """Raise if proxies are all images there are, so that no distance is left to measure their staleness by."""
    ccp, data = config.ccp, config.data
    varies = data.augment != "none" and data.name != "features"
    if ccp.mode == "alternating" and ccp.until == "stale" and not varies and largest_class <= ccp.proxies_per_class:
        raise UserError(
            "ccp.until=stale measures in covering radii, and they are 0: no class has more than "
            f"{largest_class} images, which never vary, and ccp.proxies_per_class is {ccp.proxies_per_class}. Set it "
            "lower, or ccp.until=stall."
        )


def refuse_endless(config: Config) -> None:
    """Raise if only scores on held-out data could end the training, or its problems, and nothing is held out."""
    if config.train.max_steps is None:
        raise UserError(
            "protocol.hold_out=nothing leaves no score that could end the training: set train.max_steps, or let "
            "`ccp train --final RUN` take it from a run."
        )
    if config.ccp.mode == "alternating" and config.ccp.until in ("stall", "behind"):
        raise UserError(
            "protocol.hold_out=nothing leaves no score that could end a problem: set ccp.until=stale or steps, or let "
            "`ccp train --final RUN` take its pace from a run."
        )
