"""PhysioNet 2012: records written line by line, features worked out by hand, and the real files where they are."""

import json
import math
import os
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from slimbayes.data._physionet_records import VARIABLES, read_records
from slimbayes.data.folders import MissingData
from slimbayes.data.physionet import hourly_means, load_physionet2012
from slimbayes.data.preparation import get_preparation

DESCRIPTORS = "00:00,RecordID,{id}\n00:00,Age,{age}\n00:00,Gender,{gender}\n00:00,Height,{height}\n"
DESCRIPTORS += "00:00,ICUType,{unit}\n00:00,Weight,{weight}\n"
HR, WEIGHT = VARIABLES.index("HR") + 1, VARIABLES.index("Weight") + 1


def record(lines="", id=1, age=60, gender=1, height=170, unit=2, weight=80):
    return "Time,Parameter,Value\n" + DESCRIPTORS.format(**locals()) + lines


def write_set(root, letter, records, died):
    folder = root / f"set-{letter}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in records.items():
        (folder / f"{name}.txt").write_text(text)
    header = "RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death\n"
    rows = [f"{name},6,1,5,-1,{flag}\n" for name, flag in zip(records, died, strict=True)]
    (root / f"Outcomes-{letter}.txt").write_text(header + "".join(rows))


def small_sets(root, letters="a"):
    for letter in letters:
        first = 100 * (1 + "abc".index(letter))
        records = {first + i: record(f"00:30,HR,{60 + i}\n", first + i) for i in range(10)}
        write_set(root, letter, records, [i % 2 for i in range(10)])


def test_a_record_is_parsed(tmp_path):
    path = tmp_path / "7.txt"
    path.write_text(record("00:00,Weight,81\n00:07,HR,73\n00:37,HR,77\n01:00,Weight,-1\n47:59,pH,7.4\n48:00,HR,90\n\n"))
    names, records = read_records(path)
    assert names == ["7"]
    ph = VARIABLES.index("pH") + 1
    assert records.variables.tolist() == [WEIGHT, HR, HR, ph, HR]  # the second Weight is of the series; -1 is none
    assert records.values.tolist() == pytest.approx([81, 73, 77, 7.4, 90])
    assert records.times.tolist() == pytest.approx([0, 7 / 60, 37 / 60, 47 + 59 / 60, 48])
    assert records.context.tolist() == [[60, 1, 170, 80, 0, 1, 0, 0]]
    means = hourly_means(records)[0]
    assert means[0, HR - 1] == 75
    assert means[47, HR - 1] == 90  # the end belongs to the last hour
    assert means[0, WEIGHT - 1] == 81
    assert (~means.isnan()).sum() == 4


def test_missing_descriptors_are_nan(tmp_path):
    path = tmp_path / "7.txt"
    path.write_text(record(gender=-1, height=-1, weight=-1))
    _, records = read_records(path)
    assert [math.isnan(x) for x in records.context[0].tolist()] == [False, True, True, True] + [False] * 4
    assert len(records.times) == 0


BROKEN = {
    "no header": ("00:00,Age,1\n", "7.txt, line 1: expected the header"),
    "empty": ("", "7.txt, line 1"),
    "unknown parameter": (record("01:00,Heart,60\n"), "7.txt, line 8.*01:00,Heart,60"),
    "no parameter": (record("01:00,,60\n"), "7.txt, line 8"),
    "two fields": (record("01:00,HR\n"), "7.txt, line 8"),
    "four fields": (record("01:00,HR,1,2\n"), "7.txt, line 8"),
    "no number": (record("01:00,HR,fast\n"), "7.txt, line 8"),
    "not finite": (record("01:00,HR,nan\n"), "7.txt, line 8"),
    "no time": (record("one,HR,60\n"), "7.txt, line 8"),
}


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN)
def test_a_malformed_line_is_named(text, message, tmp_path):
    (tmp_path / "7.txt").write_text(text)
    for path in (tmp_path, tmp_path / "7.txt"):
        with pytest.raises(ValueError, match=message):
            read_records(path)


def test_archives_are_read_like_folders(tmp_path):
    small_sets(tmp_path)
    names, expected = read_records(tmp_path / "set-a")
    with tarfile.open(tmp_path / "set-a.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "set-a", "set-a")
    with zipfile.ZipFile(tmp_path / "set-a.zip", "w") as archive:
        for path in (tmp_path / "set-a").iterdir():
            archive.write(path, f"set-a/{path.name}")
    for ending in (".tar.gz", ".zip"):
        found, records = read_records(tmp_path / f"set-a{ending}")
        assert found == names == [str(100 + i) for i in range(10)]
        assert records.values.tolist() == expected.values.tolist()
        (tmp_path / f"set-a{ending}").write_bytes((tmp_path / f"set-a{ending}").read_bytes()[:300])
        with pytest.raises(ValueError, match=f"set-a{ending} is truncated or damaged"):
            read_records(tmp_path / f"set-a{ending}")


# ---------------------------------------------------------------------- the loader


def scaled(values, training):
    """Clip to the middle 99.8% of training, and standardise by it."""
    low, high = np.quantile(training, [0.001, 0.999])
    kept = np.clip(training, low, high)
    return (np.clip(values, low, high) - kept.mean()) / (kept.std() or 1)


def rates_of(rows):
    return 60 + rows.numpy().astype(float)


def test_hourly_features_by_training_statistics(tmp_path):
    small_sets(tmp_path / "physionet2012")
    data = load_physionet2012(tmp_path, validation=2, test=3)
    assert [len(part) for part in (data.train, data.validation, data.test)] == [5, 2, 3]
    training = rates_of(data.train.rows)
    for part in (data.train, data.validation, data.test):
        raw, targets = part.fetch(torch.arange(len(part)))
        (features,) = data.preparation(*raw)
        assert features.shape == (len(part), *data.task.input_shape)
        assert features.dtype == torch.float32
        expected = scaled(rates_of(part.rows), training)
        for hour in (0, 1, 47):  # carried forward
            np.testing.assert_allclose(features[:, hour, HR - 1], expected, rtol=1e-5, atol=1e-6)
        assert features[:, :, 37 + HR - 1].tolist() == [[1.0] + [0.0] * 47] * len(part)
        features[:, :, [HR - 1, 37 + HR - 1]] = 0
        assert not features.any()  # never observed, or the same for all: the training mean
        assert targets.tolist() == (part.rows % 2).tolist()
    assert sorted(torch.cat([data.train.rows, data.validation.rows, data.test.rows]).tolist()) == list(range(10))


def test_events_are_padded_and_standardised(tmp_path):
    records = {i: record("".join(f"{hour:02}:15,HR,{60 + i + hour}\n" for hour in range(i)), i) for i in range(6)}
    write_set(tmp_path, "a", records, [0, 1] * 3)
    data = load_physionet2012(tmp_path, view="events", validation=1, test=1)
    training = [60.0 + i + hour for i in data.train.rows.tolist() for hour in range(i)]
    raw, _ = data.train.fetch(torch.arange(4))
    times, variables, values, context = data.preparation(*raw)
    longest = max(data.train.rows.tolist())
    assert times.shape == variables.shape == values.shape == (4, longest)
    assert data.task.input_shape == (longest,)
    assert data.task.vocabulary == 38
    assert context.shape == (4, 8)
    assert variables.dtype == torch.int64
    for row, i in enumerate(data.train.rows.tolist()):
        padding = [0] * (longest - i)
        assert variables[row].tolist() == [HR] * i + padding
        assert times[row].tolist() == [hour + 0.25 for hour in range(i)] + padding
        expected = scaled([60.0 + i + hour for hour in range(i)], training)
        np.testing.assert_allclose(values[row], [*expected, *padding], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("letters", "sets", "tested"), [("ab", "a", 200), ("abc", "a", 200), ("ac", "a", 300), ("abc", "ab", 300)]
)
def test_a_set_that_is_left_is_for_the_test(letters, sets, tested, tmp_path):
    small_sets(tmp_path, letters)
    data = load_physionet2012(tmp_path, sets=list(sets))
    assert len(data.train) == 8 * len(sets)
    assert len(data.validation) == 2 * len(sets)
    assert data.test.fetch(torch.arange(10))[1].tolist() == [i % 2 for i in range(10)]
    assert data.test.rows.tolist() == list(range(10 * len(sets), 10 * len(sets) + 10))


def test_the_split_is_seeded(tmp_path):
    small_sets(tmp_path)
    rows = [load_physionet2012(tmp_path, seed=seed).train.rows.tolist() for seed in (0, 0, 1)]
    assert rows[0] == rows[1] != rows[2]


@pytest.mark.parametrize("view", ["hourly", "events"])
def test_prediction_does_what_training_did(view, tmp_path):
    small_sets(tmp_path)
    data = load_physionet2012(tmp_path, view=view)
    again = get_preparation(json.loads(json.dumps(data.preparation.spec())))
    raw = again.read(tmp_path / "set-a")
    assert raw.names == [str(100 + i) for i in range(10)]
    expected = data.preparation(*data.train.source.fetch(torch.arange(10))[0])
    for found, wanted in zip(again(*raw.inputs), expected, strict=True):
        torch.testing.assert_close(found, wanted)
    one = again.read(tmp_path / "set-a" / "103.txt")
    assert one.names == ["103"]
    torch.testing.assert_close(again(*one.inputs)[0], expected[0][3:4])


def test_missing_files_say_what_to_do(tmp_path):
    small_sets(tmp_path)
    (tmp_path / "Outcomes-a.txt").rename(tmp_path / "else.txt")
    with pytest.raises(MissingData) as error:
        load_physionet2012(tmp_path)
    words = ("Outcomes-a.txt", str(tmp_path), "--data-dir", "SLIMBAYES_DATA", "data get physionet2012", "https://")
    for word in words:
        assert word in str(error.value)


def test_outcomes_and_records_must_belong_together(tmp_path):
    small_sets(tmp_path)
    (tmp_path / "set-a" / "104.txt").unlink()
    with pytest.raises(ValueError, match=r"1 patients are in one only; 104 has no record"):
        load_physionet2012(tmp_path)
    (tmp_path / "set-a" / "104.txt").write_text(record())
    (tmp_path / "set-a" / "99.txt").write_text(record())
    with pytest.raises(ValueError, match=r"99 has no outcome"):
        load_physionet2012(tmp_path)
    (tmp_path / "Outcomes-a.txt").write_text("RecordID,In-hospital_death\n100,2\n")
    with pytest.raises(ValueError, match=r"Outcomes-a.txt, line 2.*'100' and '2'"):
        load_physionet2012(tmp_path)


@pytest.mark.parametrize(
    ("options", "word"),
    [({"view": "hours"}, "Did you mean 'hourly'"), ({"sets": ()}, "`sets`"), ({"sets": "d"}, "'d'")],
)
def test_arguments_that_make_no_sense(options, word, tmp_path):
    with pytest.raises(ValueError, match=word):
        load_physionet2012(tmp_path, **options)


@pytest.mark.slow
@pytest.mark.skipif("SLIMBAYES_DATA" not in os.environ, reason="SLIMBAYES_DATA names no folder with the real data")
@pytest.mark.parametrize("view", ["hourly", "events"])
def test_the_real_files(view):
    data = load_physionet2012(Path(os.environ["SLIMBAYES_DATA"]), view=view)
    assert [len(part) for part in (data.train, data.validation, data.test)] == [3200, 800, 4000]
    # Published: 554 of 4,000 died in set a, 568 in set b.
    train, validation, test = (part.fetch(torch.arange(len(part))) for part in (data.train, data.validation, data.test))
    assert train[1].sum() + validation[1].sum() == 554
    assert test[1].sum() == 568
    inputs = data.preparation(*train[0])
    assert all(x.isfinite().all() for x in inputs)
    context = inputs[0][:, 0, -8:] if view == "hourly" else inputs[3]
    assert context.mean(0).abs().max() < 1e-4
    if view == "events":
        seen = inputs[1] > 0
        # 37 series; the record's own Weight and five descriptors are no events.
        assert inputs[1].unique().tolist() == list(range(38))
        assert inputs[0].max() <= 48
        heart = inputs[2][inputs[1] == HR]
        assert heart.mean().abs() < 1e-3
        assert (heart.std() - 1).abs() < 1e-3
        assert seen.sum(1).min() == 0  # some records have descriptors only


def test_a_file_that_is_no_record_is_not_called_damaged(tmp_path):
    (tmp_path / "a.csv").write_text("Time,Parameter,Value\n")
    with pytest.raises(ValueError, match=r"a\.csv to be a folder of records, an archive .* or one \.txt record"):
        read_records(tmp_path / "a.csv")
