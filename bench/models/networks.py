"""Networks of `diffusers` and `monai`, small and with random weights.

Neither library is needed otherwise: `make models` installs them (requirements/models.txt), and where one is missing
its models are not in the list.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from bench.models.spec import TINY, Dims, Inputs, ModelSpec

Make = Callable[[], Inputs]


def _build(module: str, name: str, options: dict[str, Any], _: Dims) -> nn.Module:
    return getattr(importlib.import_module(module), name)(**options)


def _fresh(make: Make, _: nn.Module, __: Dims) -> Inputs:
    return make()


def _randn(*sizes: tuple[int, ...]) -> Make:
    return lambda: (tuple(torch.randn(size) for size in sizes), {})


def _denoise(sample: tuple[int, ...], **more: tuple[int, ...]) -> Make:
    """A noisy sample, the time step, and what it is conditioned on."""

    def make() -> Inputs:
        others = {name: torch.randn(size) for name, size in more.items()}
        return (torch.randn(sample), torch.tensor([3])), others

    return make


def _dit() -> Inputs:
    return (torch.randn(1, 4, 8, 8),), {
        "timestep": torch.tensor([3]),
        "class_labels": torch.randint(0, 10, (1,)),
    }


def _text(sample: tuple[int, ...], width: int, **more: tuple[int, ...]) -> Make:
    def make() -> Inputs:
        others = {name: torch.randn(size) for name, size in more.items()}
        return (), {
            "hidden_states": torch.randn(sample),
            "encoder_hidden_states": torch.randn(1, 6, width),
            "timestep": torch.tensor([3.0]),
            **others,
        }

    return make


_BLOCKS = dict(block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4)
_DOWN = ("DownBlock2D", "AttnDownBlock2D")
_UP = ("AttnUpBlock2D", "UpBlock2D")
_CROSS = dict(
    down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    cross_attention_dim=16,
    attention_head_dim=4,
)
_VAE = dict(
    down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=4
)
_HEADS = dict(num_attention_heads=2, attention_head_dim=8)

_DIFFUSERS: list[tuple[str, dict[str, Any], Make]] = [
    ("UNet2DModel", dict(sample_size=8, down_block_types=_DOWN, up_block_types=_UP, attention_head_dim=4, **_BLOCKS),
     _denoise((1, 3, 8, 8))),
    ("UNet2DConditionModel", dict(sample_size=8, **_CROSS, **_BLOCKS),
     _denoise((1, 4, 8, 8), encoder_hidden_states=(1, 6, 16))),
    ("UNet1DModel", dict(sample_size=16, block_out_channels=(8, 16), layers_per_block=1, in_channels=4, out_channels=4,
                         down_block_types=("DownResnetBlock1D",) * 2, up_block_types=("UpResnetBlock1D",),
                         extra_in_channels=0, time_embedding_type="positional", use_timestep_embedding=True,
                         act_fn="mish", flip_sin_to_cos=False, freq_shift=1, mid_block_type="MidResTemporalBlock1D",
                         out_block_type="OutConv1DBlock", norm_num_groups=4), _denoise((1, 4, 16))),
    ("AutoencoderKL", dict(**_VAE, **_BLOCKS), _randn((1, 3, 16, 16))),
    ("AsymmetricAutoencoderKL", dict(down_block_out_channels=(8, 16), up_block_out_channels=(8, 16),
                                     norm_num_groups=4, **_VAE), _randn((1, 3, 16, 16))),
    ("AutoencoderTiny", dict(encoder_block_out_channels=(8, 8), decoder_block_out_channels=(8, 8),
                             num_encoder_blocks=(1, 1), num_decoder_blocks=(1, 1)), _randn((1, 3, 16, 16))),
    ("VQModel", dict(num_vq_embeddings=16, latent_channels=4, down_block_types=("DownEncoderBlock2D",) * 2,
                     up_block_types=("UpDecoderBlock2D",) * 2, **_BLOCKS), _randn((1, 3, 16, 16))),
    ("AutoencoderDC", dict(encoder_block_out_channels=(8, 16), decoder_block_out_channels=(8, 16), latent_channels=4,
                           attention_head_dim=4, encoder_layers_per_block=(1, 1), decoder_layers_per_block=(1, 1),
                           encoder_block_types=("ResBlock",) * 2, decoder_block_types=("ResBlock",) * 2,
                           encoder_qkv_multiscales=((), ()), decoder_qkv_multiscales=((), ())),
     _randn((1, 3, 16, 16))),
    ("DiTTransformer2DModel", dict(num_layers=2, in_channels=4, out_channels=8, sample_size=8, num_embeds_ada_norm=10,
                                   norm_num_groups=4, **_HEADS), _dit),
    ("SD3Transformer2DModel", dict(sample_size=8, patch_size=2, in_channels=4, out_channels=4, num_layers=2,
                                   joint_attention_dim=16, caption_projection_dim=16, pooled_projection_dim=8,
                                   pos_embed_max_size=8, **_HEADS),
     _text((1, 4, 8, 8), 16, pooled_projections=(1, 8))),
    ("AuraFlowTransformer2DModel", dict(sample_size=8, patch_size=2, in_channels=4, out_channels=4, num_mmdit_layers=1,
                                        num_single_dit_layers=1, joint_attention_dim=16, caption_projection_dim=16,
                                        pos_embed_max_size=64, **_HEADS), _text((1, 4, 8, 8), 16)),
    ("CogVideoXTransformer3DModel", dict(in_channels=4, out_channels=4, time_embed_dim=8, text_embed_dim=16,
                                         num_layers=2, sample_width=8, sample_height=8, sample_frames=5, patch_size=2,
                                         max_text_seq_length=6, **_HEADS), _text((1, 2, 4, 8, 8), 16)),
    ("WanTransformer3DModel", dict(num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4,
                                   text_dim=16, freq_dim=16, ffn_dim=32, num_layers=2), _text((1, 4, 2, 8, 8), 16)),
    ("StableAudioDiTModel", dict(sample_size=8, in_channels=4, out_channels=4, num_layers=2, cross_attention_dim=16,
                                 num_key_value_attention_heads=1, cross_attention_input_dim=16, time_proj_dim=8,
                                 global_states_input_dim=16, **_HEADS),
     _text((1, 4, 8), 16, global_hidden_states=(1, 1, 16))),
    ("SanaTransformer2DModel", dict(sample_size=8, patch_size=1, in_channels=4, out_channels=4, num_layers=2,
                                    num_cross_attention_heads=2, cross_attention_head_dim=8, cross_attention_dim=16,
                                    caption_channels=16, **_HEADS), _text((1, 4, 8, 8), 16)),
    ("PriorTransformer", dict(num_layers=2, embedding_dim=8, num_embeddings=6, additional_embeddings=4, **_HEADS),
     lambda: ((torch.randn(1, 8), torch.tensor([3]), torch.randn(1, 8)),
              {"encoder_hidden_states": torch.randn(1, 6, 8)})),
    ("ControlNetModel", dict(block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, cross_attention_dim=16,
                             down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), attention_head_dim=4,
                             conditioning_embedding_out_channels=(8, 16)),
     _denoise((1, 4, 8, 8), encoder_hidden_states=(1, 6, 16), controlnet_cond=(1, 3, 16, 16))),
]  # fmt: skip

_PLANE = _randn((1, 1, 32, 32))
_TWO = _randn((2, 1, 32, 32))  # batch norm of one value in each channel can't be trained on a batch of one
_FLAT = dict(spatial_dims=2, in_channels=1, out_channels=2)
_UNET = dict(channels=(4, 8, 16), strides=(2, 2))

_MONAI: list[tuple[str, dict[str, Any], Make]] = [
    ("UNet", dict(**_FLAT, **_UNET, num_res_units=1), _PLANE),
    ("AttentionUnet", dict(**_FLAT, **_UNET), _PLANE),
    ("BasicUNet", dict(**_FLAT, features=(4, 4, 8, 8, 16, 4)), _PLANE),
    ("BasicUNetPlusPlus", dict(**_FLAT, features=(4, 4, 8, 8, 16, 4)), _PLANE),
    ("DynUNet", dict(**_FLAT, kernel_size=(3, 3, 3), strides=(1, 2, 2), upsample_kernel_size=(2, 2),
                     filters=(4, 8, 16)), _PLANE),
    ("SegResNet", dict(**_FLAT, init_filters=8, blocks_down=(1, 1), blocks_up=(1,)), _PLANE),
    ("SegResNetVAE", dict(spatial_dims=2, in_channels=1, out_channels=2, init_filters=8, input_image_size=(32, 32),
                          blocks_down=(1, 1), blocks_up=(1,)), _PLANE),
    ("SegResNetDS", dict(**_FLAT, init_filters=8, blocks_down=(1, 1)), _PLANE),
    ("VNet", dict(spatial_dims=2, in_channels=1, out_channels=2), _PLANE),
    ("HighResNet", dict(**_FLAT), _PLANE),
    ("AutoEncoder", dict(**_FLAT, channels=(4, 8), strides=(2, 2)), _PLANE),
    ("VarAutoEncoder", dict(spatial_dims=2, in_shape=(1, 32, 32), out_channels=1, latent_size=4, channels=(4, 8),
                            strides=(2, 2)), _PLANE),
    ("AutoencoderKL", dict(spatial_dims=2, in_channels=1, out_channels=1, channels=(4, 8), num_res_blocks=1,
                           attention_levels=(False, False), latent_channels=2, norm_num_groups=4), _PLANE),
    ("VQVAE", dict(spatial_dims=2, in_channels=1, out_channels=1, channels=(4, 8), num_res_layers=1,
                   num_res_channels=(4, 8), num_embeddings=8, embedding_dim=4,
                   downsample_parameters=((2, 4, 1, 1),) * 2, upsample_parameters=((2, 4, 1, 1, 0),) * 2), _PLANE),
    ("DenseNet121", dict(**_FLAT, init_features=8, growth_rate=4, block_config=(2, 2)), _PLANE),
    ("ResNet", dict(block="basic", layers=[1, 1, 1, 1], block_inplanes=[4, 8, 8, 16], spatial_dims=2,
                    n_input_channels=1, num_classes=2), _PLANE),
    ("SENet", dict(spatial_dims=2, in_channels=1, block="se_resnet_bottleneck", layers=(1, 1, 1, 1), groups=1,
                   reduction=16, num_classes=2), _TWO),
    ("EfficientNetBN", dict(model_name="efficientnet-b0", pretrained=False, spatial_dims=2, in_channels=1,
                            num_classes=2), _TWO),
    ("FlexibleUNet", dict(in_channels=1, out_channels=2, backbone="resnet10", spatial_dims=2, pretrained=False),
     _TWO),
    ("ViT", dict(in_channels=1, img_size=(32, 32), patch_size=(8, 8), hidden_size=16, mlp_dim=32, num_layers=2,
                 num_heads=2, spatial_dims=2, classification=True), _PLANE),
    ("ViTAutoEnc", dict(in_channels=1, img_size=(32, 32), patch_size=(4, 4), hidden_size=16, mlp_dim=32, num_layers=2,
                        num_heads=2, spatial_dims=2), _PLANE),
    ("MaskedAutoEncoderViT", dict(in_channels=1, img_size=(32, 32), patch_size=(8, 8), hidden_size=16, mlp_dim=32,
                                  num_layers=2, num_heads=2, decoder_hidden_size=16, decoder_mlp_dim=32,
                                  decoder_num_layers=1, decoder_num_heads=2, spatial_dims=2), _PLANE),
    ("UNETR", dict(in_channels=1, out_channels=2, img_size=(32, 32), feature_size=4, hidden_size=16, mlp_dim=32,
                   num_heads=2, spatial_dims=2), _PLANE),
    ("SwinUNETR", dict(in_channels=1, out_channels=2, feature_size=12, depths=(1, 1, 1, 1), num_heads=(2, 2, 2, 2),
                       spatial_dims=2), _randn((1, 1, 64, 64))),
    ("MedNeXt", dict(spatial_dims=2, in_channels=1, out_channels=2, init_filters=4, encoder_expansion_ratio=2,
                     decoder_expansion_ratio=2, bottleneck_expansion_ratio=2, blocks_down=(1, 1, 1, 1),
                     blocks_bottleneck=1, blocks_up=(1, 1, 1, 1)), _PLANE),
    ("FullyConnectedNet", dict(in_channels=8, out_channels=4, hidden_channels=[8, 8], dropout=0.1), _randn((2, 8))),
    ("VarFullyConnectedNet", dict(in_channels=8, out_channels=8, latent_size=2, encode_channels=[8],
                                  decode_channels=[8]), _randn((2, 8))),
    ("Regressor", dict(in_shape=(1, 32, 32), out_shape=(1,), channels=(4, 8), strides=(2, 2)), _PLANE),
    ("Classifier", dict(in_shape=(1, 32, 32), classes=3, channels=(4, 8), strides=(2, 2)), _PLANE),
    ("Discriminator", dict(in_shape=(1, 32, 32), channels=(4, 8), strides=(2, 2)), _PLANE),
    ("Generator", dict(latent_shape=(8,), start_shape=(4, 8, 8), channels=(8, 1), strides=(2, 2)), _randn((1, 8))),
    ("PatchDiscriminator", dict(spatial_dims=2, in_channels=1, channels=4, num_layers_d=2), _PLANE),
    ("DiffusionModelUNet", dict(spatial_dims=2, in_channels=1, out_channels=1, channels=(4, 8), num_res_blocks=1,
                                attention_levels=(False, True), num_head_channels=4, norm_num_groups=4),
     _denoise((1, 1, 16, 16))),
    ("DecoderOnlyTransformer", dict(num_tokens=16, max_seq_len=8, attn_layers_dim=8, attn_layers_depth=2,
                                    attn_layers_heads=2), lambda: ((torch.randint(0, 16, (2, 8)),), {})),
    ("VoxelMorphUNet", dict(spatial_dims=2, in_channels=2, unet_out_channels=8, channels=(4, 4, 8, 8, 8, 8),
                            final_conv_channels=(4, 4)), _randn((1, 2, 32, 32))),
    ("LocalNet", dict(spatial_dims=2, in_channels=2, out_channels=2, num_channel_initial=4, extract_levels=(0, 1)),
     _randn((1, 2, 32, 32))),
]  # fmt: skip

_LIBRARIES = {"diffusers": ("diffusers", _DIFFUSERS), "monai": ("monai.networks.nets", _MONAI)}
_PUBLIC = {"diffusers": "diffusers.models", "monai": "monai.networks.nets"}  # modules with all networks


def left_out() -> dict[str, tuple[int, int]]:
    """By library that is installed: how many public classes of networks are not in the list, and how many there are."""
    counts = {}
    for library, (module, rows) in _LIBRARIES.items():
        if importlib.util.find_spec(library) is None:
            continue
        names = vars(importlib.import_module(_PUBLIC[library])).get("__all__") or dir(
            importlib.import_module(_PUBLIC[library])
        )
        public = {_class(_PUBLIC[library], name, library) for name in names} - {None}
        chosen = {getattr(importlib.import_module(module), name) for name, _, _ in rows}
        counts[library] = (len(public - chosen), len(public | chosen))
    return counts


def _class(module: str, name: str, library: str) -> type | None:
    """A class of the library's own networks; None: what has the name is something else, or needs what is not there."""
    try:
        found = getattr(importlib.import_module(module), name)
    except (AttributeError, ImportError, RuntimeError):
        return None
    own = isinstance(found, type) and issubclass(found, nn.Module)
    return found if own and found.__module__.startswith(library) else None


def specs() -> Iterator[ModelSpec]:
    for library, (module, rows) in _LIBRARIES.items():
        if importlib.util.find_spec(library) is None:
            continue
        for name, options, make in rows:
            build = functools.partial(_build, module, name, options)
            inputs = functools.partial(_fresh, make)
            yield ModelSpec(
                f"{library}/{name}", library, build, inputs, sizes={"tiny": TINY}, transformers=False
            )
