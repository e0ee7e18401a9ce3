"""One row's features where the SAE is on a CUDA device: they come to the host in one transfer.

To ask a device for a number is to wait for all that it was given before, and nothing is launched meanwhile. So nothing
is asked until everything is there: the largest activations with their features, how many there are, what they leave
unexplained, and whether the residual is finite.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from neuroscope.errors import ModelError
from neuroscope.sae.autoencoder import NOT_FINITE, Reading, SparseActs, SparseAutoencoder, fvu
from neuroscope.sae.norms import INPUT_NORMS

MOST = 512
"""Active features that are transferred at first; a token has some 70."""
_HEAD = 3


def read_one(sae: SparseAutoencoder, residual: Tensor, most: int, *, decoder: bool) -> Reading | None:
    """The features of one row [1, d_in] on the SAE's device, with `decoder` what they leave unexplained.

    None where more than `most` are active. Raises ModelError when the row is not finite.
    """
    found = packed(sae, residual, most, decoder=decoder).cpu().numpy()
    is_finite, count, unexplained = found[:_HEAD].view(np.float32).tolist()
    if not is_finite:
        raise ModelError(NOT_FINITE)
    values, features = np.split(found[_HEAD:], 2)
    if count > len(features):
        return None
    features, values = features[: int(count)], values[: int(count)].view(np.float32)
    order = np.argsort(features)
    return Reading(SparseActs(features[order], values[order]), unexplained if decoder else None)


def packed(sae: SparseAutoencoder, residual: Tensor, most: int, *, decoder: bool) -> Tensor:
    """All of `read_one` as int32 on the device, floats by their bits: no number is asked for on the way.

    Whether the row is finite, the number of active features and the share unexplained; the `most` largest activations,
    zero behind the last active one; and their features.
    """
    x = residual.float()
    normed, undo = INPUT_NORMS[sae.input_norm](x)
    acts = sae.encode_normed(normed)[0]
    values, features = acts.topk(min(most, sae.d_sae))
    head = [torch.isfinite(x).all().float(), (acts != 0).sum().float()]
    if decoder:
        assert sae.W_dec is not None
        assert sae.b_dec is not None
        head.append(fvu(x, undo((values @ sae.W_dec[features] + sae.b_dec)[None]))[0])
    else:
        head.append(torch.zeros_like(head[0]))
    floats = torch.cat([torch.stack(head), values])
    return torch.cat([floats.view(torch.int32), features.to(torch.int32)])
