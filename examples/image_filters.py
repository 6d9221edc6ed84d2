"""A picture made from formulas, blurred, sharpened and written as a PNG file.

    python examples/image_filters.py [pixels per side] [file.png]

Separable convolution by shifted slices, clipping, casts to uint8, and raw bytes at the end
(`tobytes`): where an array leaves NumPy for the rest of Python.
"""

import struct
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np


def picture(size):
    """Coloured rings and waves, values from 0 to 1, shape (size, size, 3)."""
    y, x = np.meshgrid(np.linspace(-1, 1, size), np.linspace(-1, 1, size), indexing="ij")
    radius = np.hypot(x, y)
    red = 0.5 + 0.5 * np.cos(24.0 * radius)
    green = np.exp(-3.0 * radius**2)
    blue = 0.5 + 0.5 * np.sin(10.0 * x * y)
    return np.stack([red, green, blue], axis=-1)


def blur(image, weights):
    """Convolve with `weights` along both axes; the edge is repeated outwards."""
    reach = len(weights) // 2
    for axis in (0, 1):
        around = [(reach, reach) if k == axis else (0, 0) for k in range(3)]
        padded = np.pad(image, around, mode="edge")
        length = image.shape[axis]
        shifted = (np.take(padded, range(k, k + length), axis) for k in range(len(weights)))
        image = sum(weight * part for weight, part in zip(weights, shifted, strict=True))
    return image


def to_bytes(image):
    """Round to 8 bits per channel."""
    return np.rint(np.clip(image, 0.0, 1.0) * 255.0).astype(np.uint8)


def write_png(path, pixels):
    """Write an (height, width, 3) uint8 array with nothing but zlib."""
    height, width, _ = pixels.shape
    lines = np.zeros((height, 1 + 3 * width), dtype=np.uint8)  # a filter byte before each line
    lines[:, 1:] = pixels.reshape(height, -1)

    def chunk(kind, data):
        checksum = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(lines.tobytes(), 6)
    file = chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    Path(path).write_bytes(b"\x89PNG\r\n\x1a\n" + file)


def main(size, path):
    image = picture(size)
    steps = np.arange(-4, 5)
    weights = np.exp(-(steps**2) / 8.0)
    soft = blur(image, weights / weights.sum())
    sharp = image + 1.5 * (image - soft)
    grey = sharp @ np.array([0.299, 0.587, 0.114])
    pixels = to_bytes(sharp)
    write_png(path, pixels)

    print(f"picture    {size} x {size} written")
    for name, k in (("red", 0), ("green", 1), ("blue", 2)):
        print(f"{name:10s} mean {image[..., k].mean():.6f}, after blur {soft[..., k].std():.6f}")
    print(f"contrast   {grey.std():.6f}")
    print(f"clipped    {np.count_nonzero((sharp < 0) | (sharp > 1)) / sharp.size:.4f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(
            int(sys.argv[1]) if len(sys.argv) > 1 else 512,
            sys.argv[2] if len(sys.argv) > 2 else Path(folder) / "rings.png",
        )
