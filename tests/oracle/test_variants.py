"""Every entry of a model's tables equals an independent implementation (`make oracle`)."""

import pytest
from oracle.cases import CASES, FUSED, VOCAB
from oracle.compare import EPSILON, Results, assert_close, assert_same, float32_logits, ours, shapes
from oracle.weights import from_torch

pytestmark = pytest.mark.oracle
SIZES = VOCAB, VOCAB


def peer_of(case, monkeypatch):
    """Return the peer with random weights, and a function that translates its tensors to ours."""
    # Not at the top: torch may be missing.
    from oracle import decoders, elmo, encoders, peers, plain, recurrent, t5, two_texts, xlnet

    decoders.widen(monkeypatch)
    (predicts,) = case.batch().targets
    tree = shapes(case.config, *SIZES, predicts)
    if case.peer == "plain":
        others = {
            "elmo": elmo.PlainElmo, "encoder": encoders.PlainEncoder,
            "recurrent": recurrent.PlainRecurrent,
            "decomposable_attention": two_texts.PlainDecomposable,
        }  # fmt: skip
        if predicts == "class":
            others["decoder"] = encoders.PlainDecoderOfClasses
        peer = others.get(case.config.architecture, plain.Plain)(case.config, tree)
        translate = dict
    else:
        peers_of = decoders.PEERS | encoders.PEERS | t5.PEERS | {"xlnet": xlnet.XLNet}
        peer = peers_of[case.peer](case.config, VOCAB)

        def translate(tensors):
            return from_torch(peer.apart(tensors), tree, peer.words)

    peers.randomise(peer)
    return peer.double(), translate, peers


@pytest.mark.parametrize("name", CASES)
def test_equals_an_independent_model(name, monkeypatch):
    """Logits, losses and the gradient of every parameter agree in float64."""
    case = CASES[name]
    peer, translate, peers = peer_of(case, monkeypatch)
    batch = case.batch()
    logits, losses, gradients = peers.run(peer, batch, EPSILON)
    translated = {convention: translate(leaves) for convention, leaves in gradients.items()}
    params = translate(peers.to_numpy(peer.tensors()))
    mine = ours(case.config, SIZES, params, batch, case.order)
    assert_same(mine, Results(logits, losses, translated))


@pytest.mark.parametrize("name", FUSED)
def test_fused_kernels_equal_an_independent_model(name, monkeypatch):
    case = FUSED[name]
    peer, translate, peers = peer_of(case, monkeypatch)
    params = translate(peers.to_numpy(peer.tensors()))
    mine = float32_logits(case.config, SIZES, params, case.batch())
    assert_close("logits", mine, peers.logits(peer, case.batch()), relative=1e-4)
