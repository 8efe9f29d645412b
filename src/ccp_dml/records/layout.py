"""Name every file in the folder of a run, a benchmark or a study. Each name stands here and nowhere else."""

from pathlib import Path

# A run's folder.
CONFIG = "config.toml"  # resolved; written last of the files that a run begins with
ENVIRONMENT = "environment.json"
OUTLINE = "outline.json"  # what the run was about to do, written when it began
CLASSES = "classes.json"  # names of the classes that train, validate and test
METRICS = "metrics.jsonl"  # a line per evaluation
CHECKPOINT = "checkpoint.pt"
PREVIOUS_CHECKPOINT = "checkpoint.previous.pt"  # taken where the newest is damaged
BEST_WEIGHTS = "best.safetensors"
PROBLEM_MAPS = "problems"  # a folder with a map per problem
TEST_EMBEDDINGS = "test_embeddings.safetensors"
GALLERY = "gallery.json"
CONFUSION = "confusion.json"
MAP_PICTURES = "map.json"
CERTIFICATE = "certificate.json"
REPORT = "report.html"  # also the page of a benchmark
CHECKSUMS = "checksums.json"  # of the documents of a finished run
RESULT = "result.json"  # written last: a run with a result is finished
LOG = "log.txt"  # what a run of a plan printed; also the log of a whole benchmark or study
TENSORBOARD = "tensorboard"  # a folder
CSV_LOG = "csv"  # a folder
CSV_LOG_FILE = "metrics.csv"  # in that folder
MLFLOW_ID = "mlflow_run_id.txt"
WANDB_ID = "wandb_run_id.txt"

# A benchmark's folder, with the folders of its runs below it.
BENCHMARK = "benchmark.toml"
RESULTS = "results.csv"  # also a study's
TABLE_JSON = "table.json"
TABLE_MARKDOWN = "table.md"
TABLE_CSV = "table.csv"
TABLE_LATEX = "table.tex"
IMPROVEMENT_PNG = "improvement.png"
IMPROVEMENT_SVG = "improvement.svg"
ENSEMBLE = "ensemble.json"  # beside the folds of one method and repeat

# A study's folder, with the folders of its runs below it.
STUDY = "study.toml"
STUDY_PAGE = "study.html"
SUMMARY = "summary.md"
TRIALS = "trials.db"
BEST_RECIPE = "best.toml"


OWN_CODE = "own_code.*.py"


def code_file(folder: Path, key: str) -> Path:
    """Name the copy of the code file that `key` names, such as loss.name, in the folder of a run or an export."""
    return folder / OWN_CODE.replace("*", key)


def map_file(run: Path, problem: int) -> Path:
    """Name the file of one problem's map in the folder of a run."""
    return run / PROBLEM_MAPS / f"{problem:03}.safetensors"


def timing_file(study: Path, loss: str) -> Path:
    """Name the file with the timings of one loss in the folder of the study `cost`."""
    return study / f"timing-{loss}.json"


def geometry_file(study: Path, method: str, repeat: int) -> Path:
    """Name the file with the measurements of one network in the folder of the study `geometry`."""
    return study / "geometry" / f"{method.replace(' ', '-')}-repeat{repeat}.safetensors"


def figure_file(study: Path, figure: str) -> Path:
    """Name the picture of one figure in the folder of a study."""
    return study / f"{figure}.png"
