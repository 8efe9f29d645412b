"""Attacks fork processes and limit them, which only Unix can."""

import os

collect_ignore_glob = [] if hasattr(os, "fork") else ["test_*.py"]
