"""Files whose cases are built from the peers' classes are collected only with these installed."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["test_huggingface_*.py"]
