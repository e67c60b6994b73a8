"""What builds its cases of the peers' classes is read only where they are installed."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["test_huggingface_*.py"]
