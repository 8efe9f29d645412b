"""The two ways a run ends early. The command line turns both into one clear sentence."""


class UserError(Exception):
    """A mistake in what the user gave us. The message names the input and the remedy."""


class NonFiniteError(Exception):
    """Training produced NaN or infinity. The message names the step, the tensor and what to try."""
