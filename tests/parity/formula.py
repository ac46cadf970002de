"""Weights that need no file: a number of a tensor is a function of the tensor's key and its index, equal
to the bit in formula.cc."""

import numpy as np
import torch


def uniform(key, count):
    """`count` fp32 values in [-0.5, 0.5), multiples of 2^-24."""
    start = 0x811C9DC5
    for byte in key.encode():  # FNV-1a
        start = ((start ^ byte) * 0x01000193) & 0xFFFFFFFF
    x = np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B1) + np.uint32(start)
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x85EBCA6B)
    x ^= x >> np.uint32(13)
    x *= np.uint32(0xC2B2AE35)
    x ^= x >> np.uint32(16)
    return (x >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24) - np.float32(0.5)


def tensor(key, shape, scale):
    return torch.from_numpy(uniform(key, int(np.prod(shape))) * np.float32(scale)).reshape(tuple(shape))


def weight(key, shape):
    """Powers of two times `uniform`, so that activations keep their size; norms are around one."""
    if len(shape) in (2, 4):
        fan_in = int(np.prod(shape[1:]))
        return tensor(key, shape, 2.0 ** (1 - (fan_in.bit_length() - 1) // 2))
    if len(shape) == 3:
        return tensor(key, shape, 1)
    value = tensor(key, shape, 0.5)
    return value + 1 if "norm" in key and key.endswith("weight") else value


def fill(model):
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.copy_(weight(key, parameter.shape))
