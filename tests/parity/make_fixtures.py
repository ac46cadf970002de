"""Writes what timm and Hugging Face transformers compute for tiny random ViTs.

Each model becomes a folder of `tests/parity/fixtures`:
  weights.safetensors    the state dict, in the library's own layout
  gradients.safetensors  d sum(logits * output_gradient) / d weight, same keys
  batch.safetensors      input [b, c, h, w], output_gradient and logits [b, classes]
  config.json            Hugging Face only: as the library writes it

Run by `make parity`; the fixtures are committed, so that the tests need no Python.
"""

import pathlib

import timm
import torch
from safetensors.torch import save_file
from transformers import ViTConfig, ViTForImageClassification

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
# Four heads: the tests cut them over 1, 2 and 4 ranks. Hugging Face's own LayerNorm epsilon.
TIMM = dict(img_size=16, patch_size=4, in_chans=3, num_classes=5, embed_dim=16, depth=2, num_heads=4,
            mlp_ratio=2)
HUGGING_FACE = ViTConfig(image_size=16, patch_size=4, num_channels=3, hidden_size=16,
                         num_hidden_layers=2, num_attention_heads=4, intermediate_size=32,
                         hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
                         layer_norm_eps=1e-12,
                         id2label={0: "normal", 1: "pore", 2: "crack", 3: "scratch", 4: "chip"})


def randomize(model):
    """Initial weights hide mistakes: most biases are zero, all norms are one."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0, 0.3)
            if "norm" in name and name.endswith("weight"):
                parameter.add_(1)


def write(name, model, logits_of):
    randomize(model)
    model.eval()
    folder = FIXTURES / name
    folder.mkdir(parents=True, exist_ok=True)
    images = torch.randn(3, 3, 16, 16)
    output_gradient = torch.randn(3, 5)
    logits = logits_of(model, images)
    (logits * output_gradient).sum().backward()
    weights = {key: value.detach().contiguous() for key, value in model.state_dict().items()}
    gradients = {key: value.grad.contiguous() for key, value in model.named_parameters()}
    assert weights.keys() == gradients.keys()
    save_file(weights, folder / "weights.safetensors", metadata={"format": "pt"})
    save_file(gradients, folder / "gradients.safetensors")
    save_file({"input": images, "output_gradient": output_gradient, "logits": logits.detach()},
              folder / "batch.safetensors")
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"fixture={name} parameters={sum(p.numel() for p in model.parameters())} bytes={size}")


def main():
    torch.manual_seed(20250101)
    torch.set_num_threads(1)
    vit = timm.models.vision_transformer.VisionTransformer
    write("timm_token", vit(**TIMM), lambda model, images: model(images))
    write("timm_mean", vit(**TIMM, global_pool="avg", class_token=False),
          lambda model, images: model(images))
    write("hugging_face", ViTForImageClassification(HUGGING_FACE),
          lambda model, images: model(images).logits)
    HUGGING_FACE.to_json_file(FIXTURES / "hugging_face" / "config.json")


if __name__ == "__main__":
    main()
