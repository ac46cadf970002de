"""Writes images of many kinds, and what Pillow makes of them, for pillow_test.

Usage: make_pillow_cases.py FOLDER. `cases.txt` there has one case a line:
  decode NAME FILE CHANNELS EXPECTED TOLERANCE
  resize NAME SOURCE LEFT TOP RIGHT BOTTOM WIDTH HEIGHT FILTER EXPECTED
Sources and expectations are binary PGM or PPM files.
"""

import io
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

WIDTH, HEIGHT = 61, 43


def pattern(channels, seed=0):
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    planes = [np.sin(x / (3 + c)) * 60 + np.cos(y / (4 + c)) * 50 + 128 for c in range(channels)]
    noisy = np.stack(planes, -1) + rng.normal(0, 8, (HEIGHT, WIDTH, channels))
    # Some hard edges, so that ringing filters clip at both ends.
    noisy[10:20, 15:30] = 255
    noisy[25:35, 40:50] = 0
    return noisy.clip(0, 255).astype(np.uint8)


class Cases:
    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.lines = []

    def decode(self, name, suffix, image, tolerance, **options):
        encoded = io.BytesIO()
        image.save(encoded, **options)
        (self.folder / f"{name}.{suffix}").write_bytes(encoded.getvalue())
        for channels, mode in ((1, "L"), (3, "RGB")):
            with Image.open(io.BytesIO(encoded.getvalue())) as decoded:
                upright = ImageOps.exif_transpose(decoded)
                if upright.mode.startswith("I"):  # 16-bit grey: Pillow's own conversion clips.
                    levels = np.asarray(upright).astype(np.float64) / 257
                    upright = Image.fromarray(np.floor(levels + 0.5).astype(np.uint8))
                self.write(upright.convert(mode), f"{name}.{mode}.pnm")
            self.lines.append(f"decode {name} {name}.{suffix} {channels} {name}.{mode}.pnm {tolerance}")

    def resize(self, name, image, box, size, kernel):
        source, expected = f"{name}.source.pnm", f"{name}.expected.pnm"
        self.write(image, source)
        resample = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC}[kernel]
        self.write(image.resize(size, resample, box), expected)
        self.lines.append(f"resize {name} {source} {' '.join(map(str, box))} {size[0]} {size[1]} "
                          f"{kernel} {expected}")

    def write(self, image, name):
        image.save(self.folder / name, format="PPM")

    def finish(self):
        (self.folder / "cases.txt").write_text("\n".join(self.lines) + "\n")


def decode_cases(cases):
    grey, rgb = Image.fromarray(pattern(1)[..., 0]), Image.fromarray(pattern(3))
    rgba = Image.fromarray(np.concatenate([pattern(3), pattern(1, 7)], -1))
    palette = rgb.quantize(40)
    sixteen = Image.fromarray((pattern(1)[..., 0].astype(np.uint16) * 256 + 77))
    cases.decode("png_grey", "png", grey, 0, format="PNG")
    cases.decode("png_rgb", "png", rgb, 0, format="PNG")
    cases.decode("png_rgba", "png", rgba, 0, format="PNG")
    cases.decode("png_palette", "png", palette, 0, format="PNG")
    cases.decode("png_bilevel", "png", grey.convert("1"), 0, format="PNG")
    cases.decode("png_grey16", "png", sixteen, 0, format="PNG")
    cases.decode("bmp_grey", "bmp", grey, 0, format="BMP")
    cases.decode("bmp_rgb", "bmp", rgb, 0, format="BMP")
    cases.decode("bmp_bilevel", "bmp", grey.convert("1"), 0, format="BMP")
    cases.decode("bmp_rgba", "bmp", rgba, 0, format="BMP")
    cases.decode("bmp_palette", "bmp", palette, 0, format="BMP")
    cases.decode("tiff_grey", "tiff", grey, 0, format="TIFF")
    cases.decode("tiff_rgb_lzw", "tiff", rgb, 0, format="TIFF", compression="tiff_lzw")
    cases.decode("tiff_palette", "tiff", palette, 0, format="TIFF")
    cases.decode("tiff_grey16", "tiff", sixteen, 1, format="TIFF")
    cases.decode("webp_lossless", "webp", rgb, 0, format="WEBP", lossless=True)
    cases.decode("webp_lossy", "webp", rgb, 3, format="WEBP", quality=80)
    # Grey from colour is the file's own Y here and is computed from rounded, clipped RGB there.
    cases.decode("jpeg_grey", "jpg", grey, 1, format="JPEG", quality=90)
    cases.decode("jpeg_444", "jpg", rgb, 8, format="JPEG", quality=90, subsampling=0)
    cases.decode("jpeg_420", "jpg", rgb, 48, format="JPEG", quality=90, subsampling=2)
    cases.decode("jpeg_progressive", "jpg", rgb, 8, format="JPEG", quality=90, subsampling=0,
                 progressive=True)
    cases.decode("jpeg_cmyk", "jpg", rgb.convert("CMYK"), 3, format="JPEG", quality=95)
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        cases.decode(f"jpeg_exif{orientation}", "jpg", grey, 1, format="JPEG", quality=90, exif=exif)


def resize_cases(cases):
    grey, rgb = Image.fromarray(pattern(1)[..., 0]), Image.fromarray(pattern(3))
    whole = (0, 0, WIDTH, HEIGHT)
    for kernel in ("bilinear", "bicubic"):
        cases.resize(f"half_{kernel}", grey, whole, (30, 21), kernel)
        cases.resize(f"tiny_{kernel}", rgb, whole, (5, 3), kernel)
        cases.resize(f"larger_{kernel}", rgb, whole, (100, 77), kernel)
        cases.resize(f"same_{kernel}", grey, whole, (WIDTH, HEIGHT), kernel)
        cases.resize(f"box_{kernel}", rgb, (9, 0, 52, 43), (16, 16), kernel)
        cases.resize(f"fraction_{kernel}", grey, (3.25, 4.5, 40.125, 39.75), (24, 24), kernel)
        cases.resize(f"single_{kernel}", grey, (10, 10, 11, 11), (8, 8), kernel)


def main():
    cases = Cases(Path(sys.argv[1]))
    decode_cases(cases)
    resize_cases(cases)
    cases.finish()


if __name__ == "__main__":
    main()
