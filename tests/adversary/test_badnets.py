"""A white patch in the corner, or a word of a text; what it shares with other backdoors is in test_backdoor."""

import pytest
import torch

from lightning_fl import ClientBatch, Federation, SettingError
from lightning_fl.adversary.badnets import Badnets
from lightning_fl.data._text import TextDataModule
from tests import training
from tests.data import making


def test_the_patch_by_hand():
    assert Badnets(size=2).patch(3, 4).int().tolist() == [[0, 0, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]
    assert Badnets(size=2).patch(2, 2).all()
    with pytest.raises(SettingError, match=r"3 x 3 pixels does not fit into images of 5 x 2; lower size"):
        Badnets(size=3).patch(5, 2)


def test_everybody_has_the_same_patch():
    images, draw = torch.zeros(2, 3, 6, 6), torch.Generator()
    attack = Badnets(size=2)
    marked = [attack.mark(images, client, draw) for client in (None, 0, 3)]
    assert all(torch.equal(marked[0], other) for other in marked)
    assert (marked[0].sum((1, 2, 3)) == 12).all()  # 2 x 2 pixels of 3 channels
    assert not images.any()


TEXTS = ["b b b a a c", "a b, c!", "b a", "c"]  # b 2, a 3, c 4, "!" 5, "," 6 by frequency


class Texts(TextDataModule):
    """Four texts of four tokens, and one of each class for the test; the second of two clients attacks."""

    class_names = ("even", "odd")

    def read(self):
        return (TEXTS, [0, 1, 0, 1]), (["c b a c a", "d"], [0, 1])


def texts(**settings):
    given = {"server_samples": 0, "federation": Federation(2, 1, "replacement", "uniform"), "length": 4}
    data = making.make(Texts, **given, **settings)
    data.setup()
    return data


def test_the_trigger_of_a_text_is_a_word_before_it():
    """A text that fills its row loses its last word; how many others each client has poisoned follows from share."""
    attack, data = Badnets(word="c", target=1, share=1.0), texts()
    attack.check_data(data)
    assert attack.triggered(data.test).inputs.tolist() == [[4, 4, 2, 3]]  # "c" before "c b a c"; "d" is of the target
    whose = ClientBatch(data.train, [torch.tensor([0, 2, 3])], [1])
    poisoned = attack.poison(whose, seed=0).samples
    assert poisoned.inputs.tolist() == [[4, 2, 2, 2], [4, 2, 3, 0], [4, 4, 0, 0]]
    assert poisoned.targets.tolist() == [1, 1, 1]
    assert data.train.inputs[0].tolist() == [2, 2, 2, 3]


def test_a_trigger_must_suit_the_data():
    for word, got in [("d", "d"), ("[UNK]", r"\[UNK\]"), (None, "None")]:
        with pytest.raises(SettingError, match=rf"badnets needs a word that the texts' .* got {got}; .* as ,,"):
            Badnets(word=word).check_data(texts())
    numbers = training.data()
    numbers.setup()
    with pytest.raises(SettingError, match=r"badnets puts a word into texts, got samples of shape \(2,\); choose"):
        Badnets(word="c").check_data(numbers)
