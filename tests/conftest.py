"""Setup shared by all tests: 8 simulated devices for modules that ask for them, checked shapes."""

import collections
import gc
import itertools
import logging
import os
import re
import tempfile
from pathlib import Path

import jax

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update(
    "jax_compilation_cache_dir",
    os.environ.get("JAX_COMPILATION_CACHE_DIR", f"{tempfile.gettempdir()}/transformer_jax_tests"),
)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)  # processes share entries

jax.config.update("jax_traceback_in_locations_limit", 0)  # of each operation: nobody reads them

import checked_shapes  # noqa: E402
import flax  # noqa: E402

flax.config.update("flax_profile", False)  # names of modules in programs: nobody reads them

checked_shapes.install(
    "transformer_jax.nn", "transformer_jax.models", "transformer_jax.training",
    "transformer_jax.decoding",
)  # fmt: skip

import hypothesis  # noqa: E402
import pytest  # noqa: E402

from transformer_jax.experiments import process  # noqa: E402

# The same examples in every run, so that a change fails by what it does, not by chance. To look for
# new ones: pytest -m hypothesis --hypothesis-profile=search
hypothesis.settings.register_profile("same", derandomize=True)
hypothesis.settings.register_profile("search", max_examples=1000, print_blob=True)
hypothesis.settings.load_profile("same")

gc.set_threshold(50_000, 20, 100)  # traced programs hold many objects, seldom garbage
process._MALLOC.clear()  # a worker runs many programs and would keep each one's peak

# Test files that compile for more than a second or start other programs: `make quick` skips them.
SLOW = (
    "data/test_tables.py",
    "decoding/test_attention.py", "decoding/test_beam.py", "decoding/test_inside.py",
    "decoding/test_lines.py", "decoding/test_live.py", "decoding/test_from_sound.py",
    "decoding/test_streaming.py",
    "evaluation/test_moves.py", "export/test_stablehlo.py",
    "decoding/test_long_lines.py", "decoding/test_sampling.py", "decoding/test_stream.py",
    "decoding/test_top.py", "decoding/test_translate.py", "decoding/test_samplers.py",
    "experiments/test_plan.py",
    "e2e/", "experiments/test_process.py", "experiments/test_programs.py", "export/test_models.py",
    "golden/", "models/", "nn/test_fused.py", "plots/test_in_browser.py", "properties/",
    "server/", "sharding/", "sweeps/test_sweep.py", "sweeps/test_sweep_command.py", "test_api.py",
    "test_benchmarks.py", "test_cli.py", "test_counting.py", "test_damage.py", "test_may_change.py",
    "test_classifier.py",
    "test_diffusion.py", "test_inputs.py", "test_parts.py", "test_span_corruption.py",
    "test_tour.py", "test_translate_cli.py", "test_understanding.py", "training/",
)  # fmt: skip
# Test files that see all 8 devices. Others see one: a program for eight takes much longer to
# compile and run.
ALL_DEVICES = (
    "decoding/test_live.py", "decoding/test_packing.py", "decoding/test_stream.py",
    "decoding/test_translate.py", "e2e/",
    "nn/test_dropout.py",
    "experiments/test_collectives.py",
    "sharding/test_expert_parallel.py", "sharding/test_gpu_forms.py", "sharding/test_in_order.py",
    "sharding/test_near_blocks.py",
    "sharding/test_kinds.py",
    "sharding/test_meshes.py", "sharding/test_pipeline.py", "sharding/test_restoring.py",
    "sharding/test_ring_attention.py", "sharding/test_two_streams.py",
    "test_bad_input.py", "test_checkpoint.py", "test_damage.py",
    "test_language_model.py", "training/test_loop.py", "training/test_step.py",
)  # fmt: skip
# Test files in which the shapes of every call are checked. In others those of the first call of a
# function are: all of them would take a tenth of the time once more.
CHECKED = (
    "decoding/test_beam.py", "decoding/test_sampling.py", "decoding/test_speculative.py",
    "decoding/test_translate.py", "golden/", "models/", "nn/", "oracle/",
    "properties/test_cached.py", "properties/test_sequences.py",
    "test_checked_shapes.py", "training/test_loss.py",
    "training/test_step.py",
)  # fmt: skip
# Folders whose files share models, compiled programs or servers, and run in one process.
TOGETHER = ("tests/properties/", "tests/server/")
MULTI30K = Path(__file__).parents[2] / "shared" / "data" / "multi30k"


def pytest_configure(config):
    """Compile with fewer optimisations, as tiny programs take longer to compile than to run.

    e2e tests and other processes that a test starts compile as usual, but for a few.
    """
    quick = not _asked_for(config, "e2e")
    jax.config.update("jax_disable_most_optimizations", quick)
    if quick:  # older emitters in one thread compile tiny programs in some 60 % of the time
        flags = ["--xla_cpu_parallel_codegen_split_count=1"]
        if jax.__version_info__ < (0, 11):  # later ones have no others, and end at unknown flags
            flags.append("--xla_cpu_use_fusion_emitters=false")
        os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags])


def _asked_for(config, mark: str) -> bool:
    """Return whether tests with a mark are selected; all are if no expression says otherwise."""
    marks = config.option.markexpr
    return not marks or re.search(rf"(?<!not ){mark}", marks) is not None


def pytest_ignore_collect(collection_path, config):
    """Do not even import the peers where no comparison with them is asked for."""
    live = collection_path.match("oracle/test_*.py") and collection_path.name != "test_complete.py"
    return True if live and not _asked_for(config, "oracle") else None


def pytest_collection_modifyitems(items):
    """Mark tests that `make quick` or `make test` skip; slow ones come first, so that both workers
    end together.
    """
    here, cases = Path(__file__).parent, collections.Counter()
    for item in items:
        if (few := item.get_closest_marker("one_in")) and not item.get_closest_marker("e2e"):
            n, turn = few.args if len(few.args) == 2 else (*few.args, 0)
            test = item.nodeid.partition("[")[0]
            if cases[test] % n != turn:
                item.add_marker(pytest.mark.thorough)
            cases[test] += 1
        if item.path.relative_to(here).as_posix().startswith(SLOW):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: "slow" not in item.keywords)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give each process whole files, as `--dist loadfile` does, and some folders as a whole."""
    if config.option.dist != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return next((folder for folder in TOGETHER if file.startswith(folder)), file)

    return Files(config, log)


@pytest.fixture(scope="session")
def multi30k() -> Path:
    """The folder of real text; tests that need it are visibly skipped where it is absent."""
    place = Path(os.environ.get("TRANSFORMER_JAX_TEST_MULTI30K", MULTI30K))
    if not place.is_dir():
        pytest.skip(f"no Multi30k at {place}; set TRANSFORMER_JAX_TEST_MULTI30K")
    return place


@pytest.fixture(scope="module", autouse=True)
def devices(request):
    """Show a module only one device, unless it is in ALL_DEVICES."""
    if request.path.relative_to(Path(__file__).parent).as_posix().startswith(ALL_DEVICES):
        yield jax.devices()
        return
    one = jax.devices()[:1]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("devices", "local_devices"):
            patch.setattr(jax, name, lambda *_: one)
        for name in ("device_count", "local_device_count"):
            patch.setattr(jax, name, lambda *_: 1)
        yield one


@pytest.fixture(scope="module", autouse=True)
def shapes_are_checked(request):
    """Check the shapes of all calls in a module that is in CHECKED, and of some in others."""
    here = request.path.relative_to(Path(__file__).parent).as_posix()
    checked_shapes.begin(every=here.startswith(CHECKED))
    yield
    checked_shapes.begin(every=True)


@pytest.fixture(scope="module", autouse=True)
def programs_are_kept():
    """Leave what a module leaves, traced programs above all, out of later garbage collections."""
    yield
    gc.freeze()


def pytest_runtest_teardown(item):
    """Drop programs before the process has as many mappings of memory as Linux allows it, 65,530,
    when the next program would be a segmentation fault: each has a few.
    """
    maps = Path("/proc/self/maps")
    if next(_ended) % 16 == 0 and maps.exists() and maps.read_bytes().count(b"\n") > _MOST_MAPS:
        jax.clear_caches()
        gc.collect()


_ended = itertools.count(1)  # tests
_MOST_MAPS = 40_000


@pytest.fixture(scope="module", autouse=True)
def own_log():
    """Undo what programs run by a module's tests set for the log of this process."""
    yield
    log = logging.getLogger("transformer_jax")
    log.propagate = True
    for handler in list(log.handlers):
        log.removeHandler(handler)
        handler.close()
