"""What pairs are known to give."""

from promptpool.experiments.catalogue import split
from promptpool.reproduce.expected import expected, stored
from promptpool.reproduce.results import read_results


def test_pairs_have_the_papers_number_and_ours() -> None:
    found = expected()
    assert found["cifar100-l2p"] == "83.83 ± 0.04 in the paper"
    assert found["cifar100-l2p-r"] == "86.31 ± 0.59 in the paper", "with as many images as the pair keeps"
    assert found["core50-upper-bound"] == "82.15 ± 0.37 in the paper"
    (l2p,) = [
        result
        for result in read_results(stored()).studies["table1"]
        if (result.stream, result.method) == ("Split glyphs100", "L2P")
    ]
    assert found["glyphs100-l2p"] == f"{l2p.accuracy} ± {l2p.accuracy_deviation} here, 3 seeds"
    assert found["glyphs100-gaussian-ewc"].endswith("here, 1 seed")
    assert "glyphs100-supsup" not in found, "Table 2 gives it more images than the pair has"
    assert all(split(name) for name in found)
