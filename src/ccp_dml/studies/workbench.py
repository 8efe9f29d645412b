"""Give studies the data and networks of a planned run, outside of its training."""

from ccp_dml.config.schema import Config
from ccp_dml.data.labelled import Parts
from ccp_dml.data.loading import loader_processes
from ccp_dml.models.embedder import Embedder
from ccp_dml.plans.plan import PlannedRun
from ccp_dml.records.logbook import Logbook
from ccp_dml.records.run_folder import is_run
from ccp_dml.runs.build import build_network, start_head
from ccp_dml.runs.datasets import build_data, classes_to_learn_and_to_select_on, remember_last
from ccp_dml.runs.devices import evaluation_device
from ccp_dml.runs.frozen import FrozenFeatures, trained_part
from ccp_dml.runs.scoring import load_network
from ccp_dml.runs.watcher import Watcher


class Workbench:
    """Gives data and networks as runs have them; data sets and frozen features are kept for the next run."""

    def __init__(self) -> None:
        self.load_data, self.frozen = remember_last(build_data), FrozenFeatures()

    def parts(self, config: Config) -> Parts:
        """Divide the run's data as its training does, as its network gets them."""
        halves = self.load_data(config.data)
        seen = self.frozen.training_inputs(config, halves, Watcher())
        learned, validation = classes_to_learn_and_to_select_on(config.protocol, seen)
        return Parts(learned, validation, self.frozen.test_inputs(config, halves.test, Watcher()))

    def first_network(self, run: PlannedRun) -> Embedder:
        """Build the network with its first weights."""
        self.refuse_other_data(run)
        config, parts = run.config, self.parts(run.config)
        network = build_network(trained_part(config.model), parts.learned, config.run.seed)
        network.to(evaluation_device(config))
        start_head(network, config, parts.learned, loader_processes(config.run.workers, parts.learned.source))
        return network

    def best_network(self, run: PlannedRun) -> Embedder:
        """Load the best network of the finished run."""
        self.refuse_other_data(run)
        return load_network(Logbook.reopen(run.folder), run.config, self.parts(run.config).test)

    def refuse_other_data(self, run: PlannedRun) -> None:
        """Raise if the run has begun with other data: they may have changed since it was trained."""
        if is_run(run.folder):
            Logbook.reopen(run.folder).pin_data(self.load_data(run.config.data).digest)
