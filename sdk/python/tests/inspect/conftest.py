"""Needs inspect-ai, and a server in DSEC_URL; see test/integrations."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("inspect_ai") else ["test_*.py"]
