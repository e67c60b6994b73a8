"""A small ESM-2: masked residues of proteins, in crops of 256; and the structure of residues.

    python benchmarks/studies/protein_clusters.py DB.fasta.gz --output=DIR
    python train.py --config=configs/proteins.py --config.data.directory=DIR
    python eval.py --workdir=runs/proteins --split=test

DB.fasta.gz are the 20,000 UniProt sequences, 9 million residues, of Debian's mmseqs2-examples; any
FASTA files will do. The script splits them by clusters of relatives, since a random split measures
memory, and prints the perplexities of n-grams.

ESM-2's architecture (Lin et al. 2023, doi:10.1126/science.ade2574): a pre-norm encoder with rotary
positions, GELU, a head of two layers with the table of residues, and token dropout: the vectors of
masks are zeroed, the others scaled. 15 % of residues are predicted, of which 80 % are masks, 10 %
others, 10 % themselves. 4 layers, width 128, 4 heads: 0.8 M parameters. Each sequence is one or
more windows of at most 256, and rows hold several, each with its own share of masks.

With DB.fasta.gz, 18,801 different sequences and 7.7 million residues of training: after 1,200
updates, seed 0, the perplexity per residue of the test clusters is 17.06 with each of some residues
masked alone (pseudo-perplexity; 14.33 as in training, where a fifth of what is predicted is not
masked), that of unigrams 18.22, of bigrams 17.99 and of trigrams 17.92. With the chains of
NetSurfP-2.0 (9,712 sequences, 2.5 million residues), on which no model was trained, n-grams have
18.18, 17.95 and 17.77; many of these chains begin with the same tag, such as HHHHHH.

    python benchmarks/studies/protein_structure.py CHAINS --output=data/structure \
      --pretraining=DIR/train.fasta
    python train.py --config=configs/proteins.py:structure
    python train.py --config=configs/proteins.py:structure_frozen
    python train.py --config=configs/proteins.py:structure_scratch
    python eval.py --workdir=runs/proteins-structure --split=test

Helix, strand or coil for each residue of a chain: tagging, where words are residues. CHAINS are
train.tsv and validation.tsv of NetSurfP-2.0, as the script says, which also prints what logistic
regression on windows of residues achieves.

structure          fine-tunes runs/proteins, the masked language model from above.
structure_frozen   a linear map of its last states alone is trained: a probe; of lower ones with
                   --config.model.num_encoder_layers=2.
structure_scratch  the same model from the start.

After 600 updates, seed 0, 68.2 % of test residues are right when fine-tuned, 64.7 % from the start,
and 53.4 % of validation's by the probe; logistic regression on 25 residues is right about 62.5 % of
test's, with pairs of neighbours 63.7 %. See results/notes/proteins.md.
"""

from transformer_jax.config import Experiment
from transformer_jax.config.convert import door

_VARIANTS = "residues", "structure", "structure_frozen", "structure_scratch"


def get_config(variant: str = "residues"):
    """Return the experiment for "residues" or one of "structure": see above."""
    if variant not in _VARIANTS:
        raise ValueError(f"no variant {variant!r}; there are {', '.join(_VARIANTS)}")
    c = door(Experiment())
    c.model.architecture = "encoder"
    c.model.num_encoder_layers = 4
    c.model.num_heads = 4
    c.model.d_model = 128
    c.model.d_ff = 512
    c.model.residual = "pre_norm"
    c.model.activation = "gelu"
    c.model.norm_epsilon = 1e-5
    c.model.positions = "none"
    c.model.relative_positions = "rope"
    c.model.embedding_scale = False
    c.model.token_dropout = 31  # <mask>, after 4 special pieces and 27 residues
    c.model.initializer = "gpt2"
    c.model.dropout_rate = 0.0

    c.objective.name = "masked_lm"
    c.objective.window = 256
    c.tgt.codec = "residues"
    c.data.directory = "data/proteins"
    c.data.columns = ("target=sequence",)
    c.data.train = ("train.fasta",)
    c.data.validation = ("validation.fasta",)
    c.data.test = ("test.fasta",)
    c.data.how_to_get = (
        "apt-get install mmseqs2-examples; benchmarks/studies/protein_clusters.py DB.fasta.gz"
    )
    c.data.max_length = 256
    c.data.tokens_per_batch = 32 * 256
    c.data.batching = "pack"

    c.optimizer.schedule = "linear"
    c.optimizer.learning_rate = 1e-3
    c.optimizer.warmup_steps = 200
    c.optimizer.b2 = 0.98
    c.optimizer.weight_decay = 0.01
    c.optimizer.clip_norm = 1.0
    c.training.label_smoothing = 0.0
    c.training.steps = 4000
    c.checkpoint.every_steps = 250
    c.checkpoint.keep_last = 1
    c.checkpoint.best_by = "loss"
    c.evaluation.every_steps = 250
    c.evaluation.bleu_sentences = 0
    if variant != "residues":
        _of_structure(c, variant)
    return c


def _of_structure(c, variant):
    """Make the experiment one of tagging residues."""
    c.objective.name = "tag"
    c.src.codec, c.tgt.codec = "residues", "labels"
    c.tokenizer.joint = False
    c.data.directory = "data/structure"
    c.data.source_language, c.data.target_language = "sequence", "structure"
    c.data.columns = ()
    c.data.train, c.data.validation, c.data.test = ("train",), ("validation",), ("test",)
    c.data.how_to_get = "benchmarks/studies/protein_structure.py CHAINS --output=data/structure"
    c.data.tokens_per_batch = 16 * 256
    c.optimizer.warmup_steps = 50
    c.training.steps = 600
    c.checkpoint.every_steps, c.evaluation.every_steps = 100, 100
    c.checkpoint.best_by = "accuracy"
    if variant == "structure_scratch":
        c.model.token_dropout = None  # no masks
    else:
        c.init.source = "runs/proteins"
    if variant == "structure_frozen":
        c.optimizer.frozen = ("(embedding|encoder)/.*",)
        c.optimizer.learning_rate = 1e-2
