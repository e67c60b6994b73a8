"""Pixel arrays as inline images of an HTML page."""

import base64
import io

import numpy as np
from PIL import Image

_SMALL, _LARGE = (
    84,
    640,
)  # the least and most pixels of a drawn picture's longer side


def beside(pictures: np.ndarray) -> np.ndarray:
    """Return pictures [N H W C] side by side: [H N*W C]."""
    count, height, width, channels = pictures.shape
    return pictures.swapaxes(0, 1).reshape(height, count * width, channels)


def as_uri(pixels: np.ndarray) -> str:
    """Return a picture of bytes [H W], [H W 1] or [H W 3] as the data URI of a PNG."""
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2:] == (1,) else pixels)
    times = max(1, -(-_SMALL // max(image.size)))
    image = image.resize((times * image.width, times * image.height), Image.Resampling.NEAREST)
    image.thumbnail((_LARGE, _LARGE), Image.Resampling.BOX)
    content = io.BytesIO()
    image.save(content, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()
