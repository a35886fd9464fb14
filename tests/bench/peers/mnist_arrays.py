"""MNIST for the peers: 50,000 training and 10,000 test samples as float32 in [0, 1]."""

import gzip
import pathlib

import numpy


def _read(folder: pathlib.Path, name: str, header: int) -> numpy.ndarray:
    plain = folder / name
    data = plain.read_bytes() if plain.exists() else gzip.decompress((folder / f"{name}.gz").read_bytes())
    return numpy.frombuffer(data, numpy.uint8, offset=header)


def load(folder: str):
    """Returns (train images, train labels, test images, test labels); random ones of the same shape without a folder."""
    if not folder:
        random = numpy.random.default_rng(0)
        return (random.random((50000, 784), numpy.float32), random.integers(0, 10, 50000),
                random.random((10000, 784), numpy.float32), random.integers(0, 10, 10000))
    path = pathlib.Path(folder)
    images = [_read(path, f"{part}-images-idx3-ubyte", 16).reshape(-1, 784).astype(numpy.float32) / 255
              for part in ("train", "t10k")]
    labels = [_read(path, f"{part}-labels-idx1-ubyte", 8).astype(numpy.int64) for part in ("train", "t10k")]
    return images[0][:50000], labels[0][:50000], images[1], labels[1]
