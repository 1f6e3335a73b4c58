"""Sweeps over settings: all combinations or a search, resumable, with one report."""

import pytest
from command_line import run, tiny

from arcgrad.recipes.paper import sweep as module

pytest.importorskip("optuna")
pytestmark = [
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def test_all_combinations_are_trained_once_and_reported(tmp_path, monkeypatch):
    settings = ["optim.learning_rate=0.001,0.01", "seed=1"]
    trained, train = [], module.train

    def counted(experiment, path, **options):
        trained.append(path.name)
        if len(trained) == 2:
            raise KeyboardInterrupt
        return train(experiment, path, **options)

    monkeypatch.setattr(module, "train", counted)
    with pytest.raises(KeyboardInterrupt):
        module.sweep(tiny(), settings, tmp_path, quiet=True)
    table, page = module.sweep(tiny(), settings, tmp_path, quiet=True)
    names = [f"optim.learning_rate={rate},seed=1" for rate in ("0.001", "0.01")]
    assert trained == [*names, names[1]]
    rows = table.read_text().splitlines()[4:]
    rates = [float(row.split("|")[-2]) for row in rows]
    assert len(rows) == 2
    assert rates == sorted(rates)
    assert all(name in page.read_text() for name in names)
    module.sweep(tiny(), settings, tmp_path, quiet=True)
    assert len(trained) == 3


def test_a_range_is_searched(tmp_path):
    settings = ["optim.learning_rate=1e-3..1e-1"]
    table, _ = module.sweep(tiny(), settings, tmp_path, trials=2, quiet=True)
    rates = [float(row.split("|")[1]) for row in table.read_text().splitlines()[4:]]
    assert len(set(rates)) == 2
    assert all(1e-3 <= rate <= 1e-1 for rate in rates)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("seed", "sweep: a setting must be key=values, but it is 'seed'"),
        ("optim.learning_rate=1..0.1", "a range must be LOW..HIGH of positive numbers"),
        ("optim.learning_rate=a..b", "a range must be LOW..HIGH of positive numbers"),
        ("optim.learning_rate=1e-3..1e-1", "a range needs a number of trials, but optim.learn"),
        ("optim.learn=1,2", "did you mean 'optim.learning_rate'"),
        ("optim.epochs=1,x", "optim.epochs must be a whole number, but it is 'x'"),
    ],
)
def test_errors_are_one_line(tmp_path, capsys, monkeypatch, setting, message):
    code, _, error = run(
        capsys, monkeypatch, "sweep", "demo", "--set", setting, "--out", tmp_path / "sweep"
    )
    assert code == 2
    assert message in error
    assert not (tmp_path / "sweep").exists()
