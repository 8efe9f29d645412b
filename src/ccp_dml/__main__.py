"""Let `python -m ccp_dml` be the command `ccp`, for where it is not on the path."""

from ccp_dml.cli import run

if __name__ == "__main__":
    run()
