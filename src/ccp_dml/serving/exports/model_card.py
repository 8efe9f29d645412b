"""README.md of an exported model: what it is, how good it is, what it promises, how to use it."""

from importlib.resources import files
from pathlib import Path

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from ccp_dml.foundation.files import write_text
from ccp_dml.records.planar_map import planar_problems
from ccp_dml.records.problem_map import read_problems
from ccp_dml.records.run_folder import RunFolder
from ccp_dml.reports.certificate_words import threshold_text
from ccp_dml.reports.figures.figure import Figure
from ccp_dml.reports.figures.map_panels import problem_panels
from ccp_dml.reports.figures.picture import write_picture
from ccp_dml.reports.words import counted
from ccp_dml.serving.exports.programs import ONNX, ONNX_OF_IMAGES, TORCH
from ccp_dml.serving.model import EmbeddingModel
from ccp_dml.serving.preprocessing import GreyPreprocessing, PhotoPreprocessing

CARD, MAP = "README.md", "map.png"
SCORES = {"map_at_r": "MAP@R", "precision_at_1": "Precision@1", "r_precision": "R-precision"}
MOST_CLASSES = 20


def write_card(model: EmbeddingModel, run: RunFolder, folder: Path, tolerance: float) -> None:
    """Write the card and, where the run left one, the map of its embeddings into the export's `folder`.

    `tolerance` is what the programs in the folder were checked to.
    """
    has_map = write_map(run, folder / MAP)
    present = {name: (folder / name).exists() for name in (ONNX, ONNX_OF_IMAGES, TORCH)}
    card = ModelCard.from_template(
        head(model, run),
        template_str=files("ccp_dml.serving.exports").joinpath("templates/model_card.md").read_text(encoding="utf-8"),
        model=model,
        setting=run.config,
        result=run.result,
        settings=training_lines(run),
        scores=score_rows(run),
        classes=class_line(model),
        preprocessing=preprocessing_line(model),
        threshold=None if model.certificate is None else threshold_text(model.certificate),
        certificate=model.certificate,
        has_map=has_map,
        onnx=present[ONNX],
        onnx_of_images=present[ONNX_OF_IMAGES],
        torch_program=present[TORCH],
        tolerance=f"{tolerance:.1g}",
        version=(run.environment.get("packages") or {}).get("ccp-dml"),
    )
    write_text(folder / CARD, str(card).rstrip() + "\n")


def head(model: EmbeddingModel, run: RunFolder) -> ModelCardData:
    """Make the card's YAML, as the Hugging Face Hub reads it."""
    test = (run.result or {}).get("test") or {}
    data = run.config["data"]["name"]
    results = [
        EvalResult(
            task_type="image-retrieval",
            dataset_type=data,
            dataset_name=f"{data}, test half",
            metric_type=key,
            metric_name=title,
            metric_value=round(test[key], 4),
        )
        for key, title in SCORES.items()
        if key in test
    ]
    return ModelCardData(
        library_name="ccp-dml",
        pipeline_tag="image-feature-extraction" if model.transform else "feature-extraction",
        license="other",
        license_name="not-chosen-yet",
        tags=["metric-learning", "image-retrieval", "embeddings"],
        model_name=model.name,
        eval_results=results or None,
    )


def training_lines(run: RunFolder) -> list[str]:
    """Describe how the network was trained, a fact per line."""
    setting, result = run.config, run.result or {}
    network, loss, protocol = setting["model"], dict(setting["loss"]), setting["protocol"]
    name = loss.pop("name")
    arguments = ", ".join(f"{key} = {value}" for key, value in loss.items())
    frozen = ", frozen: only its head was trained" if network["freeze_backbone"] else ""
    if "train_from" in network:
        frozen = f", frozen below `{network['train_from']}`"
    lines = [
        f"Backbone `{network['backbone']}`{frozen}; embeddings of {network['embedding_dim']} dimensions.",
        f"Loss `{name}`" + (f" ({arguments})." if arguments else "."),
        {
            "off": "No problems against proxies (ccp.mode = off).",
            "one-problem": "One problem against class proxies (ccp.mode = one-problem).",
            "alternating": "Alternating projections with chance constraints (ccp.mode = alternating).",
            "representatives": "Alternating projections with representatives of classes (ccp.mode = representatives).",
        }[setting["ccp"]["mode"]],
        f"Seed {setting['run']['seed']}.",
    ]
    if "steps" in result:
        problems = counted(result["problems"], "problem")
        lines.append(f"{result['steps']:,} steps in {problems}; best after {result['best_step']:,}.")
    if protocol["hold_out"] == "nothing":
        return [
            *lines,
            "Every class was trained on, those of the test half included: no score was measured, and nothing selected.",
        ]
    chosen = "the test half" if protocol["select_on"] == "test" else f"held-out {protocol['hold_out']}"
    lines.append(f"The best step was chosen on {chosen} (fold {protocol['fold']} of {protocol['folds']}).")
    return lines


def score_rows(run: RunFolder) -> list[tuple[str, str, str]]:
    """List the scores: name, on the test half, on validation; in percent."""
    test, validation = ((run.result or {}).get(half) or {} for half in ("test", "validation"))
    rows = [(title, percent(test.get(key)), percent(validation.get(key))) for key, title in SCORES.items()]
    recalls = [(f"Recall@{k}", percent(value), "") for k, value in (test.get("recall_at") or {}).items()]
    return rows + recalls


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f}"


def class_line(model: EmbeddingModel) -> str | None:
    """List the first classes by name, and how many there are."""
    names = model.description.class_names
    if names is None:
        return None
    shown = ", ".join("`" + name.replace("`", "'").replace("\n", " ") + "`" for name in names[:MOST_CLASSES])
    return shown + (f" and {len(names) - MOST_CLASSES:,} more" if len(names) > MOST_CLASSES else "")


def preprocessing_line(model: EmbeddingModel) -> str:
    own = model.preprocessing
    if isinstance(own, PhotoPreprocessing):
        return f"short side to {own.resize} pixels, central square of {own.crop} pixels"
    if isinstance(own, GreyPreprocessing):
        return f"grey, short side to {own.side} pixels, central square"
    return f"none: it takes vectors of {own.width} numbers"


def write_map(run: RunFolder, file: Path) -> bool:
    """Draw the last problem's training images; False where the run left no map."""
    problems = read_problems(run.path)
    if not problems:
        return False
    title = f"Training images of {len(problems[-1].train.class_names)} classes, problem {problems[-1].problem}"
    write_picture(file, Figure("map", "", "", problem_panels(*planar_problems(problems[-1:], [None]), [title])))
    return True
