"""Closed-form sizes of the plain model: an independent check of the counts made in programs.

The formulas cover the kinds of models that the tests count.
"""

import math

from transformer_jax.config import Experiment, ModelConfig
from transformer_jax.data.batches.batching import Shape


def parameters(
    config: ModelConfig, src_vocab_size: int, tgt_vocab_size: int, objective: str = "translate"
) -> int:
    """Return the number of parameters, computed by formula.

    V d for each piece table, and per layer: attention with three input projections and one output
    projection, with biases; feed-forward 2 d d_ff + d_ff + d (gated: one more input projection);
    and 2 d for each norm (d without a bias). Absent biases are left out; scales of normalised
    queries and keys are added. Parameters for distances are in self-attention only: once per layer,
    or once per stack. Shared layers count one pattern. Adapted maps have low-rank matrices beside
    them. An encoder has a head: d^2 + d, a norm and a bias per piece; or, for classes, d^2 + d and
    d + 1 per class.
    """
    c = config
    d, queries, values = c.d_model, c.num_heads * c.key_size, c.num_heads * c.value_size
    # Mixers in place of attention: a recurrent state has G gates with two biases each; fast weights
    # add a strength for each head; the simpler recurrent unit has two maps, one with a bias.
    gates = {"elman": 1, "lstm": 4, "gru": 3}
    others = {name: g * (2 * d * d + 2 * d) for name, g in gates.items()}
    others |= {f"bi{name}": g * (3 * d * d + 4 * d) // 2 for name, g in gates.items()}
    others |= {"ssru": 2 * d * d + d}
    kv = c.num_kv_heads or c.num_heads
    shared = kv * (c.key_size + c.value_size)
    scales = {
        "none": 0,
        "per_head": 2 * c.key_size,
        "all_heads": (c.num_heads + kv) * c.key_size,
    }[c.query_key_norm]
    attention = d * (queries + shared) + values * d + scales
    sizes = {"query": queries, "key": kv * c.key_size, "value": kv * c.value_size, "output": d}
    attention += sum(size for name, size in sizes.items() if name in c.biases)
    gate = d * {"none": 0, "elementwise": values, "headwise": c.num_heads}[c.attention_gate]
    gated = c.activation in ("swiglu", "reglu", "geglu", "geglu_tanh")
    inward = 2 if gated else 1
    bias = "feed_forward" in c.biases
    feed_forward = inward * (d + bias) * c.d_ff + (c.d_ff + bias) * d
    # Experts: the router, and a bias of each score.
    of_shared = inward * (d + bias) * c.shared_experts * c.d_ff
    of_shared += (c.shared_experts * c.d_ff + bias) * d if c.shared_experts else 0
    of_experts = c.num_experts * (feed_forward + d + 1) + of_shared + d * c.shared_expert_gate
    rank = c.lora_rank or 0  # of the two matrices beside each adapted map
    ends = {name: d + size for name, size in sizes.items()} | {"output": values + d}
    # Adapted tables: the source's and the target's, which may be one.
    apart = c.architecture == "encoder_decoder" and c.tied_embeddings != "all"
    pieces = [src_vocab_size] * (apart or c.architecture == "encoder")
    pieces += [tgt_vocab_size] * (c.architecture != "encoder")
    adapted_tables = rank * sum(size + d for size in pieces) * ("embedding" in c.lora_maps)
    attention += rank * sum(ends[name] for name in c.lora_maps if name in ends)
    adapted = [name for name in c.lora_maps if name in ("up", "gate")[:inward] or name == "down"]
    feed_forward += rank * len(adapted) * (d + c.d_ff)
    norm = {"layer_norm": 2 * d, "scale_norm": 1}.get(c.norm, d)
    side_by_side = c.residual in ("parallel", "parallel_norms")
    pre = side_by_side or c.residual in ("pre_norm", "sandwich", "reordered_norm", "reversible")
    part = norm * (2 if c.residual == "sandwich" else 1)  # of each sub-layer
    encoders, decoders = c.num_encoder_layers, c.num_decoder_layers
    if c.layer_sharing != "none":
        kept = len(c.feed_forward_pattern)
        encoders = min(math.lcm(len(c.encoder_pattern), kept), encoders)
        decoders = min(math.lcm(len(c.decoder_pattern), kept), decoders)
    distances = {
        "t5": c.relative_buckets * c.num_heads,
        "toeplitz": (2 * c.relative_clip + 1) * c.num_heads,
        "shaw": (2 * c.relative_clip + 1) * c.key_size,
        "shaw_values": (2 * c.relative_clip + 1) * (c.key_size + c.value_size),
        "xlnet": (d + 2) * queries,
    }.get(c.relative_positions, 0)
    shares = c.share_relative_positions
    if shares is None:
        shares = c.relative_positions in ("t5", "toeplitz")
    # For the decoder alone, and for both stacks.
    one, two = decoders, encoders + decoders
    one, two = (distances * count for count in ((1, 2) if shares else (one, two)))
    sigma = kv * c.key_size
    others |= {"delta_rule": attention + (d + 1) * kv, "random_features": attention + sigma}
    places = attention + 2 * c.max_positions * c.position_rank
    others |= {"aft_full": places, "aft_local": places}
    others |= {"lsh": attention - d * queries - queries * ("query" in c.biases)}
    others |= {"differential": attention + 4 * c.key_size}
    others |= {"longformer": 2 * attention - scales - values * d - d * ("output" in c.biases)}
    # Latent attention: queries from the stream or from a latent, keys and values from a latent.
    own = int(c.key_size * c.rope_fraction) if c.relative_positions.startswith("rope") else 0
    asked, size = c.query_latent_size, c.latent_size
    latent = d * queries if asked is None else (d + 1 + queries) * asked
    latent += queries * ("query" in c.biases) + d * own + (d + 1) * size
    latent += size * c.num_heads * (c.key_size - own + c.value_size)
    latent += values * d + d * ("output" in c.biases)
    others |= {"latent": latent}
    others |= {"aft_conv": attention + (2 * (c.window or 0) - 1) * c.num_heads}
    others |= {"gated_random_features": attention + sigma + (d + 1) * kv}
    others |= of_states(c)

    def mixers(pattern, count):
        kinds = [pattern[i % len(pattern)] for i in range(count)]
        gates = sum(gate for kind in kinds if kind in ("full", "differential", "local", "dilated"))
        return gates + sum(others.get(kind, attention) for kind in kinds)

    def feed_forwards(count):
        """With their norms, if they have their own."""
        kinds = (c.feed_forward_pattern * count)[:count]
        found = kinds.count("dense") * feed_forward + kinds.count("experts") * of_experts
        return found + (count - kinds.count("none")) * part * (c.residual != "parallel")

    if c.architecture == "encoder":
        layers = feed_forwards(encoders) + encoders * part + pre * norm
        layers += mixers(c.encoder_pattern, encoders) + adapted_tables
        rows = src_vocab_size + (c.max_positions if c.positions == "learned" else 0) + c.token_types
        body = rows * d + layers + distances * (1 if shares else encoders) + c.input_norm * norm
        if objective == "classify":  # the pooler and the classes
            return body + (d + 1) * d + (d + 1) * tgt_vocab_size
        if objective == "policy":  # query, key, 64 steps, 8 ways, 4 pieces, a bias for each move
            return body + 2 * (d + 1) * d + (d + 1) * (64 + 8) + 4 * d + tgt_vocab_size
        if objective == "tag":
            return body + (d + 1) * tgt_vocab_size
        if objective == "answer":
            return body + (d + 1) * 2
        if objective == "regress":
            return body + (d + 1) * d + d + 1
        if objective == "masked_lm_nsp":  # the pooler and next-sentence prediction
            body += (d + 1) * d + (d + 1) * 2
        own = src_vocab_size * d if c.tied_embeddings == "none" else 0
        return body + (d + 1) * d + norm + src_vocab_size + own
    if c.architecture != "encoder_decoder":
        layers = feed_forwards(decoders) + decoders * part + pre * norm
        layers += mixers(c.decoder_pattern, decoders) + adapted_tables
        layers += d if c.architecture == "two_stream" else 0  # the query stream's initial vector
        tables = (2 if c.tied_embeddings == "none" else 1) * tgt_vocab_size
        if objective in ("classify", "regress"):  # classes or a number instead of pieces
            layers += (d + 1) * (tgt_vocab_size if objective == "classify" else 1)
            tables = src_vocab_size
        layers += one + c.input_norm * norm
        layers += c.logits_bias * tgt_vocab_size
        if c.multi_token != "none":  # a layer of the last one's kinds, and what joins two vectors
            mixer = c.decoder_pattern[(c.num_decoder_layers - 1) % len(c.decoder_pattern)]
            kind = c.feed_forward_pattern[(c.num_decoder_layers - 1) % len(c.feed_forward_pattern)]
            each = others.get(mixer, attention + gate) + part + pre * norm + distances
            each += {"dense": feed_forward, "experts": of_experts, "none": 0}[kind]
            each += part * (kind != "none" and c.residual != "parallel")
            each += (2 * norm + 2 * d * d) * (c.multi_token == "sequential")
            layers += c.future_tokens * each
        return (tables + (c.max_positions if c.positions == "learned" else 0)) * d + layers
    encoder = feed_forwards(encoders) + encoders * part + pre * norm
    encoder += mixers(c.encoder_pattern, encoders) + adapted_tables
    decoder = feed_forwards(decoders) + decoders * (attention + gate + 2 * part) + pre * norm
    decoder += mixers(c.decoder_pattern, decoders)
    tables = {
        "all": tgt_vocab_size,
        "decoder": src_vocab_size + tgt_vocab_size,
        "none": src_vocab_size + 2 * tgt_vocab_size,
    }[c.tied_embeddings]
    learned = 2 * c.max_positions if c.positions == "learned" else 0
    of_logits = c.logits_bias * tgt_vocab_size
    return (tables + learned) * d + encoder + decoder + two + 2 * c.input_norm * norm + of_logits


def of_states(c: ModelConfig) -> dict[str, int]:
    """Return the parameters of layers with states that decay, and of two, one from each end.

    Heads have maps of keys and queries (for each group), of values and gates, back, and of rates;
    convolutions; and a bias and a decay each.
    """
    d, wide, heads, size = c.d_model, c.inner_width, c.inner_heads, c.state_size
    groups, per_head = {"mamba2": c.state_groups or 1, "gated_delta": c.state_groups or heads}, {}
    for word, count in groups.items():
        along = wide + 2 * count * size
        per_head[word] = d * (along + 2 * wide + heads) + c.state_conv * along + 2 * heads
        per_head[word] += along + heads + wide if word == "mamba2" else d * heads + wide // heads
    rank = math.ceil(d / 16)
    of_mamba = 3 * d * wide + wide * (c.state_conv + 3 * size + 2 * rank + 3)
    of_retention = 2 * d * heads * size + 3 * d * wide
    few, more = (max(32, round(x / 32) * 32) for x in (1.8 * d**0.5, 0.6 * d**0.8))
    of_rwkv7 = 4 * d * d + 2 * d * (2 * few + more) + 13 * d
    one_way = per_head | {"mamba": of_mamba, "retention": of_retention, "rwkv7": of_rwkv7}
    both = {f"bi{word}": 2 * count for word, count in one_way.items()}
    of_s4d = 2 * d * (d + 2) + 2 * d * size
    both |= {"s4d": of_s4d, "bis4d": of_s4d + d * size}
    of_mega = 4 * d * size + (d + 1) * (c.key_size + 2 * wide + 2 * d) + wide * d + 2 * d
    of_mega += 4 * c.num_heads * c.key_size
    of_bimega = of_mega + 4 * d * size
    both |= {"mega": of_mega, "bimega": of_bimega}
    return one_way | both | {"mega_chunk": of_mega, "bimega_chunk": of_bimega}


def operations(
    config: ModelConfig, tgt_vocab_size: int, rows: int, src_length: int, tgt_length: int
) -> int:
    """Return the floating-point operations of the matrix products of one training step.

    A multiply-add is two operations. The backward pass has twice those of the forward pass, plus
    what `remat` recomputes: the layers, or their products without parameters. All positions count,
    padding included, and all pairs of positions, masked or not: per layer, n d^2 and n^2 d as in
    the paper's Table 1. The fused loss computes its three products of the logits' size, one for the
    loss and two for the gradient, all in the forward pass.
    """
    c = config
    heads = c.num_heads * (c.key_size + c.value_size)
    source, target = rows * src_length, rows * tgt_length
    attention, feed_forward = 2 * c.d_model * heads, 2 * c.d_model * c.d_ff
    of_blocks = 0
    if c.feed_forward_pattern == ("experts",):
        feed_forward = 0
        of_blocks = c.num_encoder_layers * of_experts(c, source)
        of_blocks += c.num_decoder_layers * of_experts(c, target)
    encoder = source * (attention + feed_forward)
    decoder = target * (attention + feed_forward) + (source + target) * c.d_model * heads
    mixing = heads * (
        c.num_encoder_layers * source * src_length
        + c.num_decoder_layers * target * (tgt_length + src_length)
    )
    mixing += of_distances(c, c.num_encoder_layers * source + c.num_decoder_layers * target)
    layers = c.num_encoder_layers * encoder + c.num_decoder_layers * decoder + mixing
    pairs = c.num_encoder_layers * source * src_length + c.num_decoder_layers * target * tgt_length
    width = {"shaw_values": 2 * c.relative_clip + 1, "xlnet": c.d_model}
    constant = pairs * c.num_heads * width.get(c.relative_positions, 0)
    again = {"none": 0, "dots": mixing + constant, "full": layers + constant}[c.remat]
    of_logits = 6 * target * c.d_model * tgt_vocab_size
    return 6 * layers + of_logits + of_blocks + 4 * constant + 2 * again


def of_experts(c: ModelConfig, positions: int) -> int:
    """Return the operations of a training step for these positions in one layer of ungated experts.

    A router has d per expert. Choices fill blocks, eight per expert if all are used alike, of an
    even size, and each expert's last block may lack all but one. The gradients of matrices are
    added up over blocks, and biases taken for each, by products with a row per block and a column
    per expert.
    """
    experts, choices = c.num_experts, positions * c.experts_per_token
    size = max(choices // (8 * experts), 1)
    size += size > 1 and size % 2
    blocks = min((choices + experts * (size - 1)) // size, choices)
    matrices = 2 * c.d_model * c.d_ff
    routed = positions * c.d_model * experts
    added = blocks * experts * matrices
    biases = blocks * experts * (c.d_ff + c.d_model)
    return 6 * (routed + blocks * size * matrices) + 2 * added + 4 * biases


def of_encoder(
    c: ModelConfig, vocab_size: int, rows: int, length: int, classes: int = 0, pieces: bool = True
) -> int:
    """Return the operations of an encoder's training step, counted as in `operations`, for masked
    pieces, one class per row, or both.
    """
    heads, source = c.num_heads * (c.key_size + c.value_size), rows * length
    layer = source * (2 * c.d_model * heads + 2 * c.d_model * c.d_ff) + heads * source * length
    total = 6 * c.num_encoder_layers * layer
    if pieces:
        total += 6 * source * c.d_model * (c.d_model + vocab_size)
    if classes:  # the mean over the row, the pooler and the classes
        total += 6 * rows * c.d_model * (length + c.d_model + classes)
        total -= 2 * source * c.d_model  # the mean's weights are constants and have no gradient
    return total


def of_distances(c: ModelConfig, tokens: int) -> int:
    """Return the multiplications of relative positions for `tokens` tokens, counted over layers.

    Queries are multiplied by the vectors of 2k + 1 distances, and sums of weights by those of
    values; or queries are mapped to the width of sinusoids, and keys multiplied by a bias. Products
    with constants, which have no gradient, are excluded: pairs of positions that weights are summed
    by, and sinusoids.
    """
    rows = 2 * c.relative_clip + 1
    vectors = {
        "shaw": rows * c.key_size,
        "shaw_values": rows * (c.key_size + c.value_size),
        "xlnet": (c.d_model + 1) * c.key_size,
    }
    return tokens * c.num_heads * vectors.get(c.relative_positions, 0)


def memory(experiment: Experiment, shape: Shape) -> float:
    """Return an estimate of the bytes that one step takes.

    Float32 parameters, their gradients, the two moments of Adam (Muon keeps one) and the running
    mean, and what the backward pass reads of each layer: inputs and outputs of its products and
    norms in the compute dtype, attention weights in float32 as well. With `remat`, each layer's
    input and one layer's share of the rest.
    """
    c, size = experiment.model, experiment.tokenizer.vocab_size
    copies = 4 if experiment.training.ema_decay is None else 5
    state = 4 * copies * parameters(c, size, size)
    width = 2 if c.compute_dtype == "bfloat16" else 4
    heads = c.num_heads * (c.key_size + c.value_size)
    slices = experiment.training.accumulation_steps
    source, target = shape.rows * shape.src_length, shape.rows * shape.tgt_length

    def attention(queries: int, keys: int, length: int) -> float:
        weights = 0 if c.attention == "fused" else queries * length * c.num_heads * (4 + width)
        return width * (queries + keys) * heads + weights

    # A sub-layer: its output, the sum with the stream, and the norm's output.
    feed_forward = width * (2 * c.d_ff + 3 * c.d_model)
    block = 3 * width * c.d_model
    encoder = source * (feed_forward + block) + attention(source, source, shape.src_length)
    decoder: float = target * (feed_forward + 2 * block)
    decoder += attention(target, target, shape.tgt_length)
    decoder += attention(target, source, shape.src_length)
    inputs = width * c.d_model * (c.num_encoder_layers * source + c.num_decoder_layers * target)
    kept = {
        "none": c.num_encoder_layers * encoder + c.num_decoder_layers * decoder,
        "dots": (c.num_encoder_layers * encoder + c.num_decoder_layers * decoder) / 2,
        "full": inputs + max(encoder, decoder),
    }[c.remat]
    return state + kept / slices
