"""What torchrun runs: the same model in plain PyTorch, data-parallel over Gloo, with a checkpoint.

    torchrun --standalone --nproc-per-node 4 --max-restarts N peer.py FOLDER STEPS

Every committed step is a line `step seconds_since_epoch pid` of FOLDER/steps.RANK. Rank 0 writes
FOLDER/checkpoint.pt every ten steps; a restarted group goes on from it.
"""

import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

HIDDEN, DEPTH, HEADS, PATCH, SIDE, CLASSES = 192, 6, 4, 16, 128, 2
GLOBAL_BATCH, EVERY = 16, 10


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.qkv, self.proj = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.fc1, self.fc2 = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x):
        b, s, h = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, s, 3, HEADS, h // HEADS).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, s, h)
        x = x + self.proj(attended)
        return x + self.fc2(nn.functional.gelu(self.fc1(self.norm2(x))))


class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(1, HIDDEN, PATCH, PATCH)
        self.token = nn.Parameter(torch.zeros(1, 1, HIDDEN))
        self.position = nn.Parameter(torch.zeros(1, (SIDE // PATCH) ** 2 + 1, HIDDEN))
        self.blocks = nn.Sequential(*[Block() for _ in range(DEPTH)])
        self.norm, self.head = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def forward(self, images):
        x = self.patch(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


def main():
    folder, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(7)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = Vit()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    done, checkpoint = 0, folder / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["step"]
    parallel = nn.parallel.DistributedDataParallel(model)
    with open(folder / f"steps.{rank}", "a", buffering=1) as log:
        for step in range(done, steps):
            torch.manual_seed(step * world + rank)
            images = torch.randn(GLOBAL_BATCH // world, 1, SIDE, SIDE)
            labels = torch.randint(CLASSES, (GLOBAL_BATCH // world,))
            optimizer.zero_grad()
            nn.functional.cross_entropy(parallel(images), labels).backward()
            optimizer.step()
            log.write(f"{step} {time.time():.6f} {os.getpid()}\n")
            if rank == 0 and (step + 1) % EVERY == 0:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1},
                           folder / "checkpoint.new")
                os.replace(folder / "checkpoint.new", checkpoint)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
