#!/usr/bin/env bash
# Measure training and decoding on one NVIDIA GPU against PyTorch, then train and score Multi30k.
#
#     [TATOEBA=DIR] bash benchmarks/speed/gpu.sh MULTI30K OUT [--one]
#     STAGES=lm- bash benchmarks/speed/gpu.sh - OUT    # language models alone: a quarter of an hour
#
# MULTI30K is the directory with train.lc.norm.tok.{en,de}, val.* and test_2016_flickr.*; DIR, if given,
# that of configs/tatoeba.py, on which a model of the paper's base size is trained last. Results go to
# OUT: results.jsonl (one line per stage), multi30k/ and tatoeba/ (the runs). Every stage takes at most
# 9 minutes, for machines that end longer commands, and one of language models 110 seconds; a stage
# that has finished or timed out is not repeated, so the same command resumes where it stopped. --one
# runs the next stage and exits with 75 while others remain.
#
# The machine needs jax for CUDA, flax, optax, orbax-checkpoint, sentencepiece, torch and
# transformers, and CTranslate2 for its comparison. Other missing dependencies are installed into
# OUT/packages; without a network, fill that directory elsewhere (DRY_RUN=1 does).
# Grain, tensorflow-datasets and tensorboardX are not needed.
#
# STAGES, a prefix, selects stages, and then no model is trained to the end. DRY_RUN=1 runs all with
# tiny sizes on any machine. It measures nothing.
set -uo pipefail
DATA=${1:?directory of Multi30k}; OUT=${2:?directory for results}; ONE=${3:-}
HERE=$(cd "$(dirname "$0")/../.." && pwd)
PYTHON=${PYTHON:-python3}
LIMIT=${LIMIT:-540}; LM_LIMIT=${LM_LIMIT:-110}  # seconds per stage, and per one of language models
mkdir -p "$OUT"; OUT=$(cd "$OUT" && pwd); [ "$DATA" = - ] || DATA=$(cd "$DATA" && pwd)
export PYTHONPATH="$HERE:$OUT/packages${PYTHONPATH:+:$PYTHONPATH}"
export TRANSFORMER_JAX_CACHE="$OUT/cache" XLA_PYTHON_CLIENT_PREALLOCATE=false
DRY=(); SHORT=()
# One batch shape, and no search until the end: each GPU program takes about half a minute to compile.
QUICK=(--config.data.batching=pack --config.training.steps_per_execution=10
       --config.model.attention=fused --config.checkpoint.best_by=loss
       --config.evaluation.bleu_sentences=0 --config.evaluation.every_steps=5000)
if [ -n "${DRY_RUN:-}" ]; then
  DRY=(--dry-run)
  SHORT=(--config.training.steps=4 --config.checkpoint.every_steps=2 --config.evaluation.every_steps=4
         --config.training.steps_per_execution=2 --config.checkpoint.keep_last=5
         --config.model.num_encoder_layers=1 --config.model.num_decoder_layers=1)
fi

need() {  # module, package
  "$PYTHON" -c "import $1" 2>/dev/null ||
    "$PYTHON" -m pip install -q --no-deps --target "$OUT/packages" "$2" ||
    { echo "missing: $2; install it or put it into $OUT/packages" >&2; exit 2; }
}
for pair in absl=absl-py yaml=PyYAML ml_collections=ml_collections jaxtyping=jaxtyping \
    wadler_lindig=wadler-lindig rich=rich pygments=pygments markdown_it=markdown-it-py mdurl=mdurl \
    sacrebleu=sacrebleu portalocker=portalocker tabulate=tabulate colorama=colorama regex=regex \
    lxml=lxml jiwer=jiwer rapidfuzz=rapidfuzz; do
  need "${pair%%=*}" "${pair#*=}"
done

after() {  # exit code of a stage
  case $1 in
    0) ;;
    75) echo "stage not finished: run the same command again" >&2; exit 75 ;;
    *) echo "stage failed with code $1" >&2; exit "$1" ;;
  esac
  [ "$ONE" != --one ] || exit 75
}

for stage in $("$PYTHON" "$HERE/benchmarks/speed/gpu.py" --list | grep "^${STAGES:-}"); do
  grep -qs "\"stage\": \"$stage\"" "$OUT/results.jsonl" && continue
  case $stage in *ctranslate2*) "$PYTHON" -c "import ctranslate2" 2>/dev/null || continue ;; esac
  case $stage in lm-*) limit=$LM_LIMIT ;; *) limit=$LIMIT ;; esac
  timeout "$limit" "$PYTHON" "$HERE/benchmarks/speed/gpu.py" "$stage" ${DRY[@]+"${DRY[@]}"} \
    --output="$OUT/results.jsonl"
  code=$?
  if [ $code = 124 ]; then  # recorded, so that the other stages get their turn
    echo "{\"stage\": \"$stage\", \"over_limit_s\": $limit}" >> "$OUT/results.jsonl"
    echo "stage $stage took more than $limit s and is skipped" >&2
    code=0
  fi
  if [ $code != 0 ] && [ "$limit" = "$LM_LIMIT" ]; then  # time is short: others get their turn
    echo "stage $stage failed with code $code; run the same command again to repeat it" >&2
    code=0
  fi
  after $code
done

run() {  # name, config, fields: train and evaluate a run, in as many calls as it takes
  local place="$OUT/$1" config=$2 code; shift 2
  if ! ls "$place"/eval/*.json >/dev/null 2>&1; then
    # On SIGTERM, train.py saves and exits with 75, well before the limit.
    timeout -s TERM $((LIMIT - 60)) "$PYTHON" "$HERE/train.py" --config="$HERE/configs/$config" \
      --workdir="$place" "$@" "${QUICK[@]}" ${SHORT[@]+"${SHORT[@]}"}
    code=$?; [ $code = 124 ] && code=75; [ $code = 0 ] || after $code
    timeout "$LIMIT" "$PYTHON" "$HERE/eval.py" --workdir="$place" \
      --config.decoding.tokens_per_batch=262144
    code=$?; [ $code = 0 ] || after $code
  fi
}
if [ -n "${STAGES:-}" ]; then
  "$PYTHON" "$HERE/benchmarks/speed/gpu.py" --summary --output="$OUT/results.jsonl"
  exit
fi
run multi30k multi30k.py:lc --config.data.directory="$DATA"
if [ -n "${TATOEBA:-}" ]; then
  run tatoeba tatoeba.py --config.data.directory="$TATOEBA" --config.model.d_model=512 \
    --config.model.d_ff=2048 --config.model.num_heads=8 --config.model.num_encoder_layers=6 \
    --config.model.num_decoder_layers=6
fi
"$PYTHON" "$HERE/benchmarks/speed/gpu.py" --summary --output="$OUT/results.jsonl"
cat "$OUT"/*/eval/*.json
