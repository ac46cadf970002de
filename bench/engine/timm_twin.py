"""timm's training step, as step_bench does Tundish's: `timm_twin.py eager|compiled WIDTH HEADS DEPTH IMAGE
BATCH THREADS`, then a number of steps per line on standard input, median seconds per line on standard
output."""

import sys
import time

import torch
from timm.models.vision_transformer import VisionTransformer


def main():
    mode = sys.argv[1]
    width, heads, depth, image, batch, threads = (int(a) for a in sys.argv[2:8])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = VisionTransformer(img_size=image, embed_dim=width, num_heads=heads, depth=depth, num_classes=10)
    step_model = torch.compile(model) if mode == "compiled" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05, fused=True)
    images = torch.randn(batch, 3, image, image)
    labels = torch.randint(0, 10, (batch,))

    def step():
        start = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(step_model(images), labels).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return time.perf_counter() - start

    for line in sys.stdin:
        seconds = sorted(step() for _ in range(int(line)))
        print(seconds[len(seconds) // 2], flush=True)


if __name__ == "__main__":
    main()
