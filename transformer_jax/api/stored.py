"""Trained models as read from work directories, and their drafts, lexicons and prompt caches."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np

from transformer_jax.base.disk import user_path
from transformer_jax.base.errors import UserError
from transformer_jax.config import DecodingConfig, Experiment, MeshConfig, ObjectiveConfig
from transformer_jax.data.codecs.latents import Latents
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.store.lexicon import Lexicon
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.pictures import PictureLatents, picture_codes
from transformer_jax.decoding.search.speculative import LOOKUPS
from transformer_jax.decoding.text.prompt_cache import PromptCache
from transformer_jax.decoding.text.searching import Draft
from transformer_jax.models import lora
from transformer_jax.models.build import abstract_params, build_for
from transformer_jax.models.lora import Lora
from transformer_jax.models.model import Model
from transformer_jax.runs.checkpoint import Checkpoints
from transformer_jax.runs.workdir import WorkDir, run_and_checkpoint
from transformer_jax.sharding.mesh import make_mesh, replicated


class Stored(NamedTuple):
    """A trained model as read from a work directory; see `api.load`."""

    experiment: Experiment
    model: Model
    params: Any
    tokenizers: TokenizerPair
    steps: list[int]
    path: Path  # of the work directory


def read(workdir: str | Path, checkpoint: str | int | None = None) -> Stored:
    """Read a work directory and a checkpoint; see `api.load`.

    Raises:
      UserError: if the directory holds no such model.
    """
    place = WorkDir(workdir)
    experiment = place.experiment()
    tokenizers = TokenizerPair.load(place.path, experiment.tokenizer.joint, experiment.codecs)
    model: Model = build_for(experiment, *tokenizers.sizes_for(experiment.objective))
    shapes = nn.unbox(abstract_params(model))
    shardings = replicated(shapes, make_mesh(MeshConfig()))
    like = jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, shardings
    )
    checkpoints = Checkpoints(place.checkpoints, experiment.checkpoint)
    name = experiment.evaluation.checkpoint if checkpoint is None else str(checkpoint)
    params, steps = checkpoints.load_params(name, like)
    digest = checkpoints.record(steps[-1])["host"].get("tokenizer", tokenizers.digest)
    if digest != tokenizers.digest:
        raise UserError(
            f"{place.path}: its tokenizer is not the one that checkpoint {steps[-1]} was trained "
            "with; restore that one"
        )
    checkpoints.close()
    if isinstance(model, Lora):
        params = lora.merged(params, experiment.model)
        optimizer = dataclasses.replace(experiment.optimizer, unfrozen=())
        model = lora.plain(model)
        experiment = dataclasses.replace(experiment, model=model.config, optimizer=optimizer)
    return Stored(experiment, model, params, tokenizers, steps, place.path)


def read_draft(name: str, experiment: Experiment, tokenizers: TokenizerPair) -> Draft | None:
    """Return the draft model that config.decoding.draft names, DIR or DIR@CHECKPOINT, for a model
    with this experiment and tokenizer; None if it names no model.

    Raises:
      UserError: if it is missing, or its pieces or its objective do not match.
    """
    if name in LOOKUPS:
        return None
    named = f"config.decoding.draft={name!r}: "
    try:
        stored = read(*run_and_checkpoint(name))
    except UserError as error:
        raise UserError(f"{named}{error}") from None
    if stored.tokenizers.digest != tokenizers.digest:
        raise UserError(
            f"{named}its tokenizer differs from that of the model that judges its proposals; train "
            "it on the same data with the same config.tokenizer fields, or name another directory"
        )
    theirs, ours = stored.experiment.objective, experiment.objective
    if not write_alike(theirs, ours):
        raise UserError(
            f"{named}was trained with objective.name={theirs.name!r}, and cannot draft for a "
            f"model of {ours.name!r}; name one with the same objective"
        )
    return Draft(stored.model, stored.params)


def read_autoencoder(name: str | None, codec: Latents) -> PictureLatents:
    """Return the autoencoder that config.decoding.autoencoder names, DIR or DIR@CHECKPOINT, for
    latents of this codec.

    Raises:
      UserError: if it is missing, or did not make such latents.
    """
    named = f"config.decoding.autoencoder={name!r}: "
    if name is None:
        raise UserError(f"{named}is needed to make pictures of latents; set it to a work directory")
    try:
        stored = read(*run_and_checkpoint(name))
        settings = stored.experiment
        found = picture_codes(
            Loaded(stored.model, stored.params, stored.tokenizers, settings.objective,
                   settings.data)
        )  # fmt: skip
    except UserError as error:
        raise UserError(f"{named}{error}") from None
    same = isinstance(found, PictureLatents) and codec.autoencoder in ("", found.digest)
    if not isinstance(found, PictureLatents) or not same:
        raise UserError(
            f"{named}is not the autoencoder that made the latents of training; name that one, at "
            "its checkpoint, as in DIR@1500"
        )
    return found


def write_alike(one: ObjectiveConfig, other: ObjectiveConfig) -> bool:
    """Return whether models of two objectives can write one text, piece by piece."""
    return one.kind == other.kind or (one.record.searches and other.record.searches)


class Companions:
    """Drafts, an autoencoder, a lexicon and prompt caches for models with these tokenizers, each
    read once.
    """

    def __init__(self, tokenizers: TokenizerPair) -> None:
        self._tokenizers = tokenizers
        self._drafts: dict[str, Draft | None] = {}
        self._caches: dict[tuple[Model, int, Path], PromptCache] = {}
        self._autoencoders: dict[str | None, PictureLatents] = {}
        self._lexicon: Lexicon | None = None

    def draft(self, decoding: DecodingConfig, experiment: Experiment) -> Draft | None:
        """Return the draft model, if there is one; see `read_draft`."""
        name = decoding.draft
        if name is not None and name not in self._drafts:
            self._drafts[name] = read_draft(name, experiment, self._tokenizers)
        return None if name is None else self._drafts[name]

    def pictures(self, latents: np.ndarray, decoding: DecodingConfig) -> np.ndarray:
        """Return the pictures of latents [n rows columns C]; see `read_autoencoder`."""
        name, codec = decoding.autoencoder, self._tokenizers.src
        assert isinstance(codec, Latents)
        if name not in self._autoencoders:
            self._autoencoders[name] = read_autoencoder(name, codec)
        return self._autoencoders[name].decode(latents)

    def lexicon(self, decoding: DecodingConfig, workdir: Path | None) -> Lexicon | None:
        """Return the lexicon for shortlists, if the config asks for them.

        Raises:
          UserError: if it is not in the work directory, or belongs to other tokenizers.
        """
        if not decoding.shortlist:
            return None
        if self._lexicon is None:
            named = f"config.decoding.shortlist={decoding.shortlist}: "
            if workdir is None:
                raise UserError(f"{named}needs the lexicon of a work directory; set it to 0")
            try:
                self._lexicon = Lexicon.load(workdir, self._tokenizers.digest)
            except UserError as error:
                raise UserError(f"{named}{error}") from None
        return self._lexicon

    def prompts(
        self, models: Sequence[Model], params: Sequence[Any], draft: Draft | None,
        directory: str | Path,
    ) -> list[PromptCache]:  # fmt: skip
        """Return the prompt caches of all models, followed by that of the draft."""
        pairs = [*zip(models, params, strict=True)] + ([tuple(draft)] if draft else [])
        place = user_path(directory)
        for model, mine in pairs:  # hashing parameters takes time
            key = model, id(mine), place
            if key not in self._caches:
                self._caches[key] = PromptCache(model, mine, self._tokenizers.digest, place)
        return [self._caches[model, id(mine), place] for model, mine in pairs]
