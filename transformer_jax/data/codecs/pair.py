"""The codecs of both sides: trained together, and saved beside the checkpoints."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transformer_jax.base.disk import write_bytes, write_text
from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import Special
from transformer_jax.config import Experiment, ObjectiveConfig, SourceConfig, TokenizerConfig
from transformer_jax.config.choices.codecs import CODECS as KNOWN
from transformer_jax.config.choices.codecs import SIZED
from transformer_jax.config.registry import found_in, pick
from transformer_jax.data import codecs as here
from transformer_jax.data import sources
from transformer_jax.data.codecs import imported, letters, utf8
from transformer_jax.data.codecs.chat import FILE, ChatTemplate
from transformer_jax.data.codecs.codec import Codec, Kind, special_of
from transformer_jax.data.codecs.series import Series
from transformer_jax.data.codecs.text_augmentation import enlarged
from transformer_jax.data.texts import joined

_FOUND = found_in(here, besides=__name__)
# By their words, in the order of the manual: the `WORDS` of the modules beside this one.
CODECS: dict[str, Kind] = {word: _FOUND[word] for word in KNOWN if word in _FOUND}


def kind_named(name: str) -> Kind:
    """Return an entry of the table, or a user-defined part."""
    return pick(CODECS, name, "config.src.codec or config.tgt.codec")


Names = tuple[str, str]  # of the source side's codec and the target side's
SUBWORDS: Names = ("subwords", "subwords")


@dataclass(frozen=True)
class TokenizerPair:
    """The source side's codec and the target side's; the same object when joint. Iteration yields
    both. `template` makes texts of conversations, if the model reads any.
    """

    src: Codec
    tgt: Codec
    template: ChatTemplate | None = None

    def __iter__(self) -> Iterator[Codec]:
        yield self.src
        yield self.tgt

    def special(self, chats: bool) -> Special:
        """Return the ids that delimit texts of the target side; if these are answers in chats, they
        end with what the template ends them with.
        """
        special = special_of(self.tgt)
        if not chats:
            return special
        assert self.template is not None
        return special._replace(eos=self.template.end(self.tgt))

    @property
    def sizes(self) -> tuple[int, int]:
        return self.src.size, self.tgt.size

    def sizes_for(self, objective: ObjectiveConfig) -> tuple[int, int]:
        """Return them as a model has them: of series whose channels it reads together, these."""
        if objective.channels == "apart":
            return self.sizes
        assert isinstance(self.tgt, Series)
        return self.tgt.channels, self.tgt.size

    @classmethod
    def shared(cls, codec: Codec) -> "TokenizerPair":
        """Return a joint pair; an imported codec may read targets in another way than sources."""
        return cls(codec, codec.of_targets if isinstance(codec, imported.Imported) else codec)

    @property
    def joint(self) -> bool:
        """Whether both sides are the same codec, which has one file."""
        tgt = self.tgt
        return self.src is tgt or (isinstance(tgt, imported.Imported) and tgt.side == "target")

    @property
    def digest(self) -> str:
        template = "" if self.template is None else self.template.digest
        return f"{self.src.digest}{self.tgt.digest}{template}"

    def save(self, directory: Path) -> None:
        """Write one shared file, or one for each side: tokenizer.model, or tokenizer.src.model and
        tokenizer.tgt.model; and the chat template, if there is one.
        """
        if self.template is not None:
            write_text(directory / FILE, self.template.source)
        for name, codec in zip(_file_names(self.joint, *self), self, strict=True):
            write_bytes(directory / name, codec.model)

    @classmethod
    def load(cls, directory: Path, joint: bool, codecs: Names = SUBWORDS) -> "TokenizerPair":
        """Read the files written by `save`.

        Raises:
          UserError: if a file is missing, or is not a tokenizer written by `save`.
        """
        kinds = [kind_named(name) for name in codecs]
        names = _file_names(joint, *(kind.codec for kind in kinds))
        loaded = {name: _load(directory / name, kinds[i]) for i, name in enumerate(names)}
        pair = cls(loaded[names[0]], loaded[names[-1]])
        pair = cls.shared(pair.src) if pair.src is pair.tgt else pair
        return replace(pair, template=ChatTemplate.beside(directory))


def _file_names(joint: bool, src: type[Codec] | Codec, tgt: type[Codec] | Codec) -> Names:
    if joint:
        return src.file.format(""), tgt.file.format("")
    return src.file.format(".src"), tgt.file.format(".tgt")


def _load(path: Path, kind: Kind) -> Codec:
    if not path.exists():
        raise UserError(f"{path}: no tokenizer here; train a model in this directory first")
    try:
        return kind.codec(path.read_bytes())
    except UserError:
        raise
    except (RuntimeError, ValueError) as error:
        raise UserError(f"{path}: not {kind.holds} ({error})") from None


def train_pair(
    config: TokenizerConfig,
    src: Sequence[str],
    tgt: Sequence[str],
    codecs: Names = SUBWORDS,
    symbols: Sequence[str] = (),
    source: SourceConfig = SourceConfig(),  # noqa: B008 (immutable)
) -> TokenizerPair:
    """Train a joint codec on both sides, or one for each; `symbols` become named pieces.

    Raises:
      UserError: if the text allows no such codec.
    """
    one, other = map(kind_named, codecs)
    if config.joint:
        both = one.fit(config, source, joined([src, tgt]), symbols)
        return TokenizerPair(both, both)
    return TokenizerPair(
        one.fit(config, source, src, symbols), other.fit(config, source, tgt, symbols)
    )


def chosen_sizes(experiment: Experiment) -> tuple[int | None, int | None]:
    """Return the sizes of both codecs as far as the config determines them; None where they depend
    on the training text, like the number of its characters."""
    symbols = experiment.objective.symbols
    known: dict[str, int] = {
        "bytes": utf8.SIZE + len(symbols),
        "values": 1,
        "spans": 2,
        "series": 1,
        "coordinates": 3,
        **{word: size + len(symbols) for word, size in letters.SIZES.items()},
    }
    if experiment.tokenizer.model is None:
        known |= dict.fromkeys(SIZED, experiment.tokenizer.vocab_size)
    if experiment.objective.channels == "together":
        del known["series"]
    src, tgt = (known.get(name) for name in experiment.codecs)
    return src, tgt


def expected_sizes(experiment: Experiment) -> tuple[int, int]:
    """Return the sizes that both codecs will have, before they are trained.

    For subwords the config gives the size; characters are counted in the training text.

    Raises:
      UserError: if characters must be counted and the training text cannot be read.
    """
    config, codecs = experiment.tokenizer, experiment.codecs
    symbols = experiment.objective.symbols
    texts: Sequence[Sequence[str]] = ((), ())
    sizes = chosen_sizes(experiment)
    counted = {name for name, size in zip(codecs, sizes, strict=True) if size is None}
    if counted - {"subwords", "huggingface"}:  # sizes fixed by an existing model
        corpora = sources.tasks(experiment.data, experiment.objective)
        corpora, _ = enlarged(corpora, experiment)
        corpus = sources.whole([*corpora.values()])
        texts = (corpus.src, corpus.tgt)
        if config.joint:
            texts = (joined([corpus.src, corpus.tgt]),) * 2
    if experiment.objective.channels == "together":
        codec = kind_named(codecs[1]).fit(config, experiment.src, corpus.tgt, symbols)
        return TokenizerPair(codec, codec).sizes_for(experiment.objective)
    src, tgt = (
        size or kind_named(name).fit(config, experiment.src, text, symbols).size
        for size, name, text in zip(sizes, codecs, texts, strict=True)
    )
    return src, tgt
