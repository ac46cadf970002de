"""Loads what parity_test wrote into the folder given as argument with timm and transformers, and compares
the logits with the fixtures'. Run by `make parity`."""

import pathlib
import sys

import formula
import timm
import torch
from safetensors.torch import load_file
from transformers import AutoImageProcessor, AutoModelForImageClassification

FIXTURES = pathlib.Path(__file__).parent / "fixtures"


def check(name, logits, want):
    deviation = ((logits - want).abs().max() / want.abs().max()).item()
    print(f"export={name} deviation={deviation:.2e}")
    if not deviation <= 1e-5:
        sys.exit(f"{name}: logits deviate by {deviation:.2e}, at most 1e-5 is right")


def check_formula(fixture, folder):
    want = load_file(fixture)["logits"]
    # timm's constructor takes no LayerNorm epsilon from a config, and its default is 1e-6.
    if not fixture.stem.startswith("hf_"):
        model = timm.create_model(f"local-dir:{folder / 'timm'}", pretrained=True).eval()
        channels, size, _ = model.pretrained_cfg["input_size"]
        images = formula.tensor("input", (2, channels, size, size), 4)
        check(f"{fixture.stem}/timm", model(images), want)
    if (folder / "hf").exists():
        model = AutoModelForImageClassification.from_pretrained(folder / "hf").eval()
        size, channels = model.config.image_size, model.config.num_channels
        images = formula.tensor("input", (2, channels, size, size), 4)
        # A timm fixture was computed with timm's epsilon, which its export carries on.
        check(f"{fixture.stem}/hf", model(images).logits, want)


def main(exports):
    torch.set_grad_enabled(False)
    for fixture in sorted((FIXTURES / "formula").glob("[th]*.safetensors")):
        check_formula(fixture, exports / "formula" / fixture.stem)
    for fixture in sorted(FIXTURES.iterdir()):
        if fixture.name == "formula":
            continue
        batch = load_file(fixture / "batch.safetensors")
        folder = exports / fixture.name
        # timm's constructor takes no LayerNorm epsilon from a config, and its default is 1e-6.
        if fixture.name.startswith("timm"):
            model = timm.create_model(f"local-dir:{folder / 'timm'}", pretrained=True).eval()
            check(f"{fixture.name}/timm", model(batch["input"]), batch["logits"])
            assert model.pretrained_cfg["label_names"][1] == "pore"
            assert model.pretrained_cfg["mean"] == [0.5, 0.5, 0.5]
        if (folder / "hf").exists():
            model = AutoModelForImageClassification.from_pretrained(folder / "hf").eval()
            check(f"{fixture.name}/hf", model(batch["input"]).logits, batch["logits"])
            assert model.config.id2label[1] == "pore"
            assert AutoImageProcessor.from_pretrained(folder / "hf").image_mean == [0.5, 0.5, 0.5]


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
