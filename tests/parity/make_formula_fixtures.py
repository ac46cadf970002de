"""Writes what timm and transformers compute for ViTs whose weights are formula.py's: every size family,
scaled down in depth and image, and every option.

Each becomes fixtures/formula/NAME.safetensors: `logits`, and of each gradient, under timm's key, either all
(`grad.KEY`) or 64 evenly spaced values (`sample.KEY`), the largest magnitude (`max.KEY`) and the projection
on formula.py's vector of the same key over the root of the count (`dot.KEY`).

Run by `make parity`; the tables here and in formula_test.cc name the same models.
"""

import pathlib

import formula
import numpy as np
import torch
from safetensors.torch import save_file
from timm.models._manipulate import adapt_input_conv
from timm.models.vision_transformer import VisionTransformer, checkpoint_filter_fn
from timm.optim import param_groups_layer_decay
from transformers import ViTConfig, ViTForImageClassification

FIXTURES = pathlib.Path(__file__).parent / "fixtures" / "formula"
CLASSES = 5
BATCH = 2
WHOLE = 4096  # Gradients up to this size are kept whole.
SAMPLES = 64

# name: hidden, heads, patch, depth. Images are three patches wide.
FAMILIES = {
    "tiny": (192, 3, 8, 3),
    "small": (384, 6, 32, 2),
    "base": (768, 12, 16, 2),
    "large": (1024, 16, 16, 2),
    "huge": (1280, 16, 14, 1),
}
SMALL = dict(img_size=16, patch_size=4, num_classes=CLASSES, embed_dim=16, depth=2, num_heads=4, mlp_ratio=2)
OPTIONS = {
    "registers": dict(reg_tokens=3, init_values=0.1),
    "dino": dict(reg_tokens=2, no_embed_class=True, qk_norm=True, init_values=0.5),
    "mean_with_token": dict(global_pool="avg"),
    "mean_after_norm": dict(global_pool="avg", fc_norm=False),
    "token_before_norm": dict(fc_norm=True),
}


def images(channels, size):
    return formula.tensor("input", (BATCH, channels, size, size), 4)


def timm_gradients(model):
    return {key: parameter.grad for key, parameter in model.named_parameters()}


def hf_gradients(model):
    """By timm key."""
    plain = {"embeddings.cls_token": "cls_token", "embeddings.position_embeddings": "pos_embed",
             "embeddings.patch_embeddings.projection": "patch_embed.proj", "layernorm": "norm",
             "layernorm_before": "norm1", "layernorm_after": "norm2", "attention.output.dense": "attn.proj",
             "intermediate.dense": "mlp.fc1", "output.dense": "mlp.fc2"}
    result, thirds = {}, {}
    for key, parameter in model.named_parameters():
        if parameter.grad is None:
            continue
        if key.startswith("classifier."):
            result[key.replace("classifier", "head")] = parameter.grad
            continue
        key = key.removeprefix("vit.")
        block = ""
        if key.startswith("encoder.layer."):
            _, _, index, key = key.split(".", 3)
            block = f"blocks.{index}."
        if key in plain:
            result[plain[key]] = parameter.grad
            continue
        module, field = key.rsplit(".", 1)
        if module.startswith("attention.attention."):
            thirds.setdefault(f"{block}attn.qkv.{field}", {})[module.rsplit(".", 1)[1]] = parameter.grad
        else:
            result[f"{block}{plain[module]}.{field}"] = parameter.grad
    for key, parts in thirds.items():
        result[key] = torch.cat([parts["query"], parts["key"], parts["value"]])
    return result


def write(name, logits, gradients_of):
    (logits * formula.tensor("output_gradient", logits.shape, 2)).sum().backward()
    tensors = {"logits": logits.detach()}
    for key, gradient in gradients_of().items():
        flat = gradient.flatten()
        if flat.numel() <= WHOLE and "family" not in name:
            tensors[f"grad.{key}"] = gradient.contiguous()
            continue
        count = flat.numel()
        places = torch.arange(min(SAMPLES, count)) * count // min(SAMPLES, count)
        projection = np.dot(flat.double().numpy(), formula.uniform(key, count).astype(np.float64))
        tensors[f"sample.{key}"] = flat[places].contiguous()
        tensors[f"max.{key}"] = flat.abs().max().reshape(1)
        tensors[f"dot.{key}"] = torch.tensor([projection / count**0.5], dtype=torch.float32)
    FIXTURES.mkdir(parents=True, exist_ok=True)
    save_file(tensors, FIXTURES / f"{name}.safetensors")
    print(f"fixture={name} bytes={(FIXTURES / f'{name}.safetensors').stat().st_size}")


def write_timm(name, channels=3, prepare=formula.fill, **arguments):
    model = VisionTransformer(in_chans=channels, **arguments).eval()
    prepare(model)
    write(f"timm_{name}", model(images(channels, arguments["img_size"])), lambda: timm_gradients(model))


def hf_config(size, patch, hidden, depth, heads, mlp):
    return ViTConfig(image_size=size, patch_size=patch, hidden_size=hidden, num_hidden_layers=depth,
                     num_attention_heads=heads, intermediate_size=mlp, hidden_dropout_prob=0.0,
                     attention_probs_dropout_prob=0.0, layer_norm_eps=1e-12, num_labels=CLASSES)


def fold_to_grey(model):
    formula.fill(model)
    with torch.no_grad():
        weight = model.patch_embed.proj.weight
        rgb = formula.weight("patch_embed.proj.weight", (weight.shape[0], 3, *weight.shape[2:]))
        weight.copy_(adapt_input_conv(1, rgb))


def resize(model):
    """The weights are those of a model for 16 pixels."""
    source = VisionTransformer(**SMALL)
    formula.fill(source)
    model.load_state_dict(checkpoint_filter_fn(source.state_dict(), model), strict=True)


def write_groups():
    """timm's share of the learning rate and weight decay of each parameter."""
    for option in ("dino", "mean_with_token"):
        model = VisionTransformer(**SMALL, **OPTIONS[option])
        groups = param_groups_layer_decay(model, weight_decay=0.05, layer_decay=0.75,
                                          no_weight_decay_list=model.no_weight_decay())
        rows = {id(p): (g["lr_scale"], g["weight_decay"]) for g in groups for p in g["params"]}
        save_file({key: torch.tensor(rows[id(p)]) for key, p in model.named_parameters()},
                  FIXTURES / f"groups_{option}.safetensors")


def main():
    torch.set_num_threads(1)
    for family, (hidden, heads, patch, depth) in FAMILIES.items():
        write_timm(f"family_{family}", img_size=3 * patch, patch_size=patch, num_classes=CLASSES,
                   embed_dim=hidden, depth=depth, num_heads=heads)
        model = ViTForImageClassification(hf_config(3 * patch, patch, hidden, depth, heads, 4 * hidden)).eval()
        formula.fill(model)
        write(f"hf_family_{family}", model(images(3, 3 * patch)).logits, lambda: hf_gradients(model))
    for option, arguments in OPTIONS.items():
        write_timm(option, **SMALL, **arguments)
    write_timm("grey_from_rgb", channels=1, prepare=fold_to_grey, **SMALL)
    for size in (12, 28):
        write_timm(f"resized_to_{size}", prepare=resize, **{**SMALL, "img_size": size})
        model = ViTForImageClassification(hf_config(16, 4, 16, 2, 4, 32)).eval()
        formula.fill(model)
        # The gradient of the table is that of the small one; ours would be the large one's.
        model.vit.embeddings.position_embeddings.requires_grad_(False)
        write(f"hf_resized_to_{size}", model(images(3, size), interpolate_pos_encoding=True).logits,
              lambda: hf_gradients(model))
    write_groups()


if __name__ == "__main__":
    main()
