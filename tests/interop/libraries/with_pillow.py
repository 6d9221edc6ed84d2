"""Pillow in ordinary use: pictures from arrays and arrays from pictures."""

import hashlib
import io
import sys

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageOps

SIZES = (16, 160)


def digest(picture):
    return picture.mode, picture.size, hashlib.sha256(picture.tobytes()).hexdigest()[:16]


def pictures(side):
    ramp = np.add.outer(np.arange(side), np.arange(side))
    grey = (ramp * 255 / ramp.max()).astype(np.uint8)
    colour = np.dstack([grey, grey[::-1], 255 - grey])
    for values in (
        grey,
        colour,
        np.dstack([colour, np.full_like(grey, 128)]),
        ramp.astype(np.int32),
        (ramp / ramp.max()).astype(np.float32),
        grey.T[::2],
        grey > 100,
        (ramp * 50).astype(np.uint16),
    ):
        picture = Image.fromarray(values)
        again = np.asarray(picture)
        print(*digest(picture), again.dtype, again.shape, np.array_equal(again, values))
    return Image.fromarray(colour)


def work(picture):
    grey = np.asarray(picture.convert("L"), dtype=float)
    print(grey.mean().round(4), (grey > 128).sum(), np.array(picture).max(axis=(0, 1)))
    for made in (
        picture.resize((20, 30)),
        picture.rotate(30),
        picture.filter(ImageFilter.GaussianBlur(2)),
        ImageOps.invert(picture),
        ImageEnhance.Contrast(picture).enhance(1.5),
        Image.fromarray(np.clip(grey * 1.2, 0, 255).astype(np.uint8)),
        Image.blend(picture, Image.fromarray(np.zeros_like(np.asarray(picture))), 0.5),
        Image.fromarray(np.hypot(*np.gradient(grey)).astype(np.uint8)),
        picture.point(np.arange(256).tolist() * 3),
    ):
        print(*digest(made))
    array = np.array(picture)
    array[5:9, 5:9] = [255, 0, 0]
    marked = Image.fromarray(array)
    ImageDraw.Draw(marked).line([tuple(p) for p in np.array([[0, 0], [9, 9]]).tolist()], fill=0)
    marked.paste(picture.crop((0, 0, 4, 4)), (2, 2))
    marked.putpixel((1, 1), tuple(array[5, 5].tolist()))
    stream = io.BytesIO()
    marked.save(stream, "PNG")
    read = Image.open(io.BytesIO(stream.getvalue()))
    print(*digest(read), np.asarray(read)[5:7, 5].tolist(), read.histogram()[:3])
    print(Image.frombytes("L", (4, 2), np.arange(8, dtype=np.uint8)).getpixel((3, 1)))
    shared = np.zeros((4, 4), np.uint8)
    print(Image.frombuffer("L", (4, 4), shared, "raw", "L", 0, 1).getextrema())


def main():
    for side in map(int, sys.argv[1:] or SIZES):
        work(pictures(side))


if __name__ == "__main__":
    main()
