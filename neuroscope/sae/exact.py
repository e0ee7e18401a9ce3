"""One row's features, each summed for itself in one fixed order.

A matrix product rounds a feature's pre-activation otherwise on another machine, with other threads or beside other
rows. Here the float32 products of a feature are added in a fixed tree of element-wise sums, so the result is the same
to the last bit whichever other features are computed with it. `screen` leaves out what cannot be active, and relies
on exactly that.
"""

from __future__ import annotations

import torch
from torch import Tensor

from neuroscope.sae.autoencoder import SparseActs, SparseAutoencoder

BLOCK = 256
"""Features whose products are in memory together; they stay in the processor's cache."""


def depth(d_in: int) -> int:
    """Additions between a product and the sum of `d_in` of them, of which each rounds once."""
    return max(d_in - 1, 0).bit_length()


def summed(products: Tensor) -> Tensor:
    """Row sums [n] of `products` [n, d], the upper half added to the lower until one is left. Overwrites `products`."""
    length = products.shape[-1]
    while length > 1:
        half = length // 2
        products[:, :half].add_(products[:, length - half : length])
        length -= half
    return products[:, 0]


def features_of(sae: SparseAutoencoder, normed: Tensor, candidates: Tensor) -> SparseActs:
    """The active ones among `candidates` [n], ascending feature indices, of one row `normed` [d_in].

    `normed` has been through the SAE's input norm. Of equal values at a TopK's last place the lower indices stay.
    """
    rows = sae.W_enc.T
    sums = [summed(rows[block] * normed) for block in torch.split(candidates, BLOCK)]
    pre = torch.cat(sums) + sae.b_enc[candidates] if sums else normed.new_zeros(0)
    active = (pre > sae.threshold[candidates]) & (pre > 0)
    features, values = candidates[active], pre[active]
    if sae.k is not None and len(values) > sae.k:
        kept = values.sort(descending=True, stable=True).indices[: sae.k].sort().values
        features, values = features[kept], values[kept]
    return SparseActs(features.to(torch.int32).cpu().numpy(), values.cpu().numpy())
