"""Stems: configs, which need no torch, and a stem of torch's convolutions."""

import dataclasses
import itertools
from typing import Any

from transformer_jax.config import ModelConfig

LINEAR = ModelConfig(
    architecture="encoder", stem="linear", d_model=24, d_ff=40, num_heads=4, num_encoder_layers=2,
    dropout_rate=0.0, norm_epsilon=1e-12, max_positions=5, positions="learned",
    embedding_scale=False, residual="pre_norm", activation="gelu", pooler=False,
)  # fmt: skip
CONVOLUTION = dataclasses.replace(LINEAR, stem="convolution", grid=(2, 2))
PLACED = dataclasses.replace(LINEAR, grid=(2, 2), grid_positions="sinusoidal")
# PatchTST, with every distribution; positions are those of patches.
SERIES = {
    name: ModelConfig(
        architecture="encoder", stem="series", patch_length=8, patch_stride=4, distribution=name,
        d_model=24, d_ff=40, num_heads=4, num_encoder_layers=2, dropout_rate=0.0, max_positions=5,
        positions="learned", embedding_scale=False, activation="gelu",
    )
    for name in ("point", "normal", "student_t", "quantiles")
}  # fmt: skip
DLINEAR = ModelConfig(
    architecture="dlinear", stem="series", positions="none", trend_rows=7, series_norm="learned",
)  # fmt: skip
NLINEAR = dataclasses.replace(DLINEAR, series_norm="last")
VARIATES = ModelConfig(
    architecture="encoder", stem="variates", d_model=24, d_ff=40, num_heads=4, positions="none",
    num_encoder_layers=2, dropout_rate=0.0, activation="gelu", residual="pre_norm",
    distribution="normal", series_norm="none", norm_epsilon=1e-5,
)  # fmt: skip
# The Perceiver, with blocks that share parameters; for pieces and for vectors.
PERCEIVER = ModelConfig(
    architecture="perceiver", num_latents=3, d_model=24, d_ff=48, num_heads=4, num_encoder_layers=4,
    encoder_pattern=("full", "full"), layer_sharing="all", dropout_rate=0.0, norm_epsilon=1e-5,
    max_positions=5, positions="learned", embedding_scale=False, input_norm=True,
    residual="pre_norm", activation="gelu",
)  # fmt: skip
PERCEIVER_LINEAR = dataclasses.replace(PERCEIVER, stem="linear")
DECODER = ModelConfig(
    architecture="decoder", d_model=24, d_ff=40, num_heads=4, num_decoder_layers=2,
    dropout_rate=0.0, norm_epsilon=1e-12, max_positions=16, positions="learned",
    embedding_scale=False, residual="pre_norm", activation="gelu",
)  # fmt: skip
PREFIX = dataclasses.replace(
    DECODER, architecture="prefix_decoder", stem="linear", num_encoder_layers=2
)
WHISPER = ModelConfig(
    architecture="encoder", stem="conv1d", d_model=24, d_ff=40, num_heads=4,
    num_encoder_layers=2, dropout_rate=0.0, norm_epsilon=1e-5, embedding_scale=False,
    positions="sinusoidal_tensor2tensor", residual="pre_norm", activation="gelu",
    biases=("query", "value", "output", "feed_forward"),
)  # fmt: skip
CONFORMER = ModelConfig(
    architecture="encoder", stem="linear", d_model=24, d_ff=40, num_heads=4,
    num_encoder_layers=2, dropout_rate=0.0, norm_epsilon=1e-5, positions="none",
    relative_positions="xlnet", residual="pre_norm", activation="silu",
    encoder_pattern=("conformer",), conv_kernel=5,
)  # fmt: skip
AUTOENCODER = dataclasses.replace(
    LINEAR, architecture="autoencoder", num_decoder_layers=2, num_codes=7, code_width=4,
    max_positions=4, pooler=ModelConfig.pooler,
)  # fmt: skip
VARIATIONAL = dataclasses.replace(
    AUTOENCODER,
    architecture="variational_autoencoder",
    num_codes=ModelConfig.num_codes,
    kl_weight=0.3,
)
# DiT, whose norms have no parameters, and MM-DiT.
DIT = ModelConfig(
    architecture="diffusion_transformer", stem="linear", d_model=16, d_ff=64, num_heads=2,
    num_encoder_layers=2, dropout_rate=0.0, positions="none", embedding_scale=False,
    grid=(4, 4), grid_positions="sinusoidal", residual="adaptive_norm", activation="gelu_tanh",
)  # fmt: skip
MM_DIT = dataclasses.replace(
    DIT, condition="text", query_key_norm="per_head", num_encoder_layers=3,
    encoder_pattern=("joint", "joint", "joint_last"),
)  # fmt: skip
# The Decision Transformer of Hopper and the like, in small.
DECISIONS = ModelConfig(
    architecture="decision_transformer", stem="trajectory", actions="continuous", d_model=16,
    d_ff=64, num_heads=2, num_decoder_layers=2, dropout_rate=0.0, norm_epsilon=1e-5,
    positions="learned", max_positions=12, embedding_scale=False, input_norm=True,
    residual="pre_norm", activation="relu",
)  # fmt: skip
# AlphaFold's Evoformer, in small.
EVOFORMER = ModelConfig(
    architecture="evoformer", stem="pairs", positions="none", d_model=12, num_heads=3,
    num_encoder_layers=2, pair_width=8, pair_heads=2, outer_width=5, distance_bins=6, recycling=1,
    dropout_rate=0.0, norm_epsilon=1e-5,
)  # fmt: skip
# ViViT: all tubelets of a clip of 2 x 2 x 2 together, and frames before times; TimeSformer.
VIVIT = dataclasses.replace(
    LINEAR, max_positions=9, norm_epsilon=1e-6, num_decoder_layers=ModelConfig.num_decoder_layers
)
FACTORISED = dataclasses.replace(
    VIVIT, architecture="factorised_encoder", grid=(2, 2, 2), num_time_layers=1, max_positions=5
)
TIMESFORMER = dataclasses.replace(
    VIVIT, grid=(3, 2, 2), grid_positions="learned", positions="none", encoder_pattern=("divided",)
)
# Latte's alternation of frames and times, as blocks of any kind of model.
ALTERNATING = dataclasses.replace(
    VIVIT,
    grid=(3, 2, 2),
    encoder_pattern=("space", "time"),
    num_encoder_layers=3,
    max_positions=13,
)
STEMS = [
    LINEAR, CONVOLUTION, PLACED, *SERIES.values(), DLINEAR, NLINEAR, VARIATES, PERCEIVER, PREFIX,
    WHISPER, CONFORMER, AUTOENCODER, VARIATIONAL, DIT, MM_DIT, DECISIONS, EVOFORMER, VIVIT,
    FACTORISED, TIMESFORMER, ALTERNATING,
]  # fmt: skip


def Convolutions(config: ModelConfig, channels: int) -> Any:
    """Return convolutions of stride 2, each with a channel norm and GELU, and a linear map."""
    import torch

    class Stem(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [channels, config.d_model // 2, config.d_model]
            self.convolutions = torch.nn.ModuleList(
                torch.nn.Conv2d(one, other, 3, stride=2, padding=1)
                for one, other in itertools.pairwise(widths)
            )
            self.norms = torch.nn.ModuleList(
                torch.nn.LayerNorm(width, config.norm_epsilon) for width in widths[1:]
            )
            self.projection = torch.nn.Linear(config.d_model, config.d_model)

        def forward(self, pixel_values, **_) -> torch.Tensor:
            x = pixel_values
            for convolution, norm in zip(self.convolutions, self.norms, strict=True):
                x = convolution(x)
                x = norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
                x = torch.nn.functional.gelu(x)
            return self.projection(x.flatten(2).transpose(1, 2))

    return Stem()
