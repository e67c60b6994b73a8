"""Model fields that other engines and formats have no setting for, and the values they may have."""

from transformer_jax.allowed import ANY, Allowed

# Fields that are not part of an exported model, or have no effect without one that is: settings of
# training and execution, and sizes, which an exporter may restrict further. An exporter that
# supports one of them says so in a list of its own.
NEUTRAL: Allowed = {
    "d_model": ANY,
    "d_ff": ANY,
    "num_heads": ANY,
    "head_dim": ANY,
    "v_head_dim": ANY,
    "num_kv_heads": (None,),
    "num_encoder_layers": ANY,
    "num_decoder_layers": ANY,
    "encoder_pattern": ("full",),
    "decoder_pattern": ("full",),
    "window": (None,),
    "latent_size": ANY,  # of latent attention, like the next
    "query_latent_size": ANY,
    "dilation": ANY,  # of dilated layers only
    "global_tokens": ANY,  # of longformer only
    "conv_kernel": ANY,  # of Conformers
    "block_size": ANY,  # of bigbird, like the next
    "random_blocks": ANY,
    "recurrence": ("luong",),  # of recurrent models, like the next three
    "source_attention": ("general",),
    "input_feeding": (True,),
    "reverse_source": (False,),
    "hash_rounds": ANY,  # of lsh, like the next
    "hash_buckets": ANY,
    "position_rank": ANY,  # of attention-free layers
    "num_features": ANY,  # of random features only, like the next two
    "redraw_every": ANY,
    "feature_seed": ANY,
    "dropout_rate": ANY,  # used in training only, like the next three
    "attention_dropout_rate": ANY,
    "activation_dropout_rate": ANY,
    "layer_drop_rate": ANY,
    "token_types": (0,),
    "input_norm": (False,),
    "pooling": ("first",),
    "pooler": (True,),
    "stem": ("embedding",),
    "stem_layers": ANY,  # of a convolutional stem, like the next
    "grid": ANY,
    "grid_positions": ("none",),
    "patch_length": ANY,  # of a stem for series, like the next two
    "patch_stride": ANY,
    "distribution": ("point",),
    "num_latents": ANY,  # of Perceivers
    "num_codes": ANY,  # of autoencoders, like the next two
    "code_width": ANY,
    "commitment": ANY,
    "feed_forward_pattern": ("dense",),
    "num_experts": ANY,  # of experts, like the next five
    "experts_per_token": ANY,
    "expert_scores": ("softmax",),
    "normalize_expert_weights": ANY,
    "shared_experts": ANY,
    "balancing_rate": ANY,
    "norm_epsilon": ANY,
    "score_scale": ("inverse_sqrt",),
    "attention_temperature": (1.0,),
    "query_key_norm": ("none",),
    "attention": ("dense", "fused"),
    "max_positions": ANY,
    "rope_theta": ANY,
    "rope_scaling": ("none",),
    "rope_factor": ANY,  # of scaled frequencies, like the next
    "rope_length": ANY,
    "rope_fraction": (1.0,),
    "relative_buckets": ANY,
    "relative_max_distance": ANY,
    "relative_clip": ANY,
    "share_relative_positions": (None,),
    "embedding_norm": ("none",),
    "logits_bias": (False,),
    "layer_sharing": ("none",),
    "initializer": ("xavier", "t5", "gpt2"),  # used at the start of training only
    "compute_dtype": ("float32", "bfloat16"),  # weights are float32; an engine chooses its own
    "lora_rank": (None,),  # trained adapters are merged into the weights when read
    "lora_alpha": (8.0,),  # no effect without a rank, like the next
    "lora_maps": (("query", "value"),),
    "layer_loop": ("unrolled", "scan"),
    "remat": ("none", "dots", "full"),
    "feed_forward_chunks": ANY,
}
