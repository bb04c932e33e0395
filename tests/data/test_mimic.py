"""MIMIC-III: small tables in the official schema, made up here; events, variables and splits worked out by hand."""

import gzip
import json

import numpy as np
import pytest
import torch

from slimbayes.data._mimic_events import read_cohort, read_events
from slimbayes.data._mimic_tables import read_batches
from slimbayes.data.folders import MissingData
from slimbayes.data.mimic import load_mimic3
from slimbayes.data.preparation import get_preparation
from slimbayes.nets.ehr import RecordClassifier

# The headers of v1.4.
HEADERS = {
    "PATIENTS": "ROW_ID,SUBJECT_ID,GENDER,DOB,DOD,DOD_HOSP,DOD_SSN,EXPIRE_FLAG",
    "ADMISSIONS": "ROW_ID,SUBJECT_ID,HADM_ID,ADMITTIME,DISCHTIME,DEATHTIME,ADMISSION_TYPE,ADMISSION_LOCATION,"
    "DISCHARGE_LOCATION,INSURANCE,LANGUAGE,RELIGION,MARITAL_STATUS,ETHNICITY,EDREGTIME,EDOUTTIME,DIAGNOSIS,"
    "HOSPITAL_EXPIRE_FLAG,HAS_CHARTEVENTS_DATA",
    "LABEVENTS": "ROW_ID,SUBJECT_ID,HADM_ID,ITEMID,CHARTTIME,VALUE,VALUENUM,VALUEUOM,FLAG",
    "CHARTEVENTS": "ROW_ID,SUBJECT_ID,HADM_ID,ICUSTAY_ID,ITEMID,CHARTTIME,STORETIME,CGID,VALUE,VALUENUM,VALUEUOM,"
    "WARNING,ERROR,RESULTSTATUS,STOPPED",
    "PRESCRIPTIONS": "ROW_ID,SUBJECT_ID,HADM_ID,ICUSTAY_ID,STARTDATE,ENDDATE,DRUG_TYPE,DRUG,DRUG_NAME_POE,"
    "DRUG_NAME_GENERIC,FORMULARY_DRUG_CD,GSN,NDC,PROD_STRENGTH,DOSE_VAL_RX,DOSE_UNIT_RX,FORM_VAL_DISP,"
    "FORM_UNIT_DISP,ROUTE",
}


def text_of(table, rows, header=None):
    """Return a table with these columns filled, text quoted, as the publisher does it."""
    names = HEADERS[table].split(",")
    lines = []
    for number, row in enumerate(rows, 1):
        cells = {"ROW_ID": number, **row}
        assert cells.keys() <= set(names)
        quoted = (f'"{c}"' if isinstance(c, str) and c and ":" not in c else str(c) for c in map(cells.get, names))
        lines.append(",".join("" if cell == "None" else cell for cell in quoted))
    quoted_header = ",".join(f'"{name}"' for name in (header or HEADERS[table]).split(","))
    return "\n".join([quoted_header, *lines]) + "\n"


def patient(subject, dob="2100-01-01 00:00:00", gender="M"):
    return {"SUBJECT_ID": subject, "GENDER": gender, "DOB": dob, "EXPIRE_FLAG": 0}


def stay(subject, hadm, admit="2150-03-01 10:00:00", discharge="2150-03-09 12:00:00", death=None, died=0):
    row = {"SUBJECT_ID": subject, "HADM_ID": hadm, "ADMITTIME": admit, "DISCHTIME": discharge, "DEATHTIME": death}
    return (
        row
        | {"ADMISSION_TYPE": "EMERGENCY", "DIAGNOSIS": 'SEPSIS, "RULE OUT"'.replace('"', '""')}
        | {
            "HOSPITAL_EXPIRE_FLAG": died,
            "HAS_CHARTEVENTS_DATA": 1,
        }
    )


def lab(hadm, item, time, value="", number=None):
    return {"SUBJECT_ID": 1, "HADM_ID": hadm, "ITEMID": item, "CHARTTIME": time, "VALUE": value, "VALUENUM": number}


def write(root, table, rows, ending=".csv", header=None):
    root.mkdir(parents=True, exist_ok=True)
    text = text_of(table, rows, header)
    if ending.endswith(".gz"):
        (root / f"{table}{ending}").write_bytes(gzip.compress(text.encode()))
    else:
        (root / f"{table}{ending}").write_text(text)


def one_stay(root, labs=(), **others):
    write(root, "PATIENTS", [patient(1)])
    write(root, "ADMISSIONS", [stay(1, 10)])
    write(root, "LABEVENTS", labs)
    for table, rows in others.items():
        write(root, table.upper(), rows)


def hospital(root, ending=".csv", header=str):
    """Write 20 patients with one stay each, but patient 1 with two; potassium is 4 + subject / 10 at hour 1."""
    stays = [stay(1, 1000), *(stay(i, 1000 + i, died=i % 2) for i in range(1, 21))]
    labs = [lab(1000 + i, 50971, "2150-03-01 11:00:00", f"{4 + i / 10}", 4 + i / 10) for i in range(21)]
    labs += [lab(1000 + i, 50912, "2150-03-02 09:59:59", "1.5", 1.5) for i in range(0, 21, 2)]
    labs += [lab(1000 + i, 50971, "2150-03-02 10:00:00", "99", 99) for i in range(21)]  # too late
    labs += [lab(1000 + i, 51463, "2150-03-01 12:00:00", "NEG") for i in range(0, 21, 3)]
    for table, rows in {
        "PATIENTS": [patient(i, gender="MF"[i % 2]) for i in range(1, 21)],
        "ADMISSIONS": stays,
        "LABEVENTS": labs,
    }.items():
        write(root, table, rows, ending, header(HEADERS[table]))


# ---------------------------------------------------------------------- who


def test_who_is_in_the_study(tmp_path):
    write(tmp_path, "PATIENTS", [patient(1), patient(2, "2140-01-01 00:00:00"), patient(3, "1850-03-01 00:00:00", "F")])
    stays = [
        stay(3, 31, died=1, death="2150-03-09 12:00:00"),
        stay(1, 12),
        stay(2, 20),  # ten years old
        stay(1, 13, discharge="2150-03-02 10:00:00"),  # left when the prediction is made
        stay(1, 14, death="2150-03-01 20:00:00", died=1),  # dead by then
        stay(1, 15, discharge="2150-03-02 10:00:01"),
        stay(1, 16, discharge=None),  # still there
        stay(1, 17, death="2150-02-28 20:00:00", died=1),  # an organ donor
    ]
    write(tmp_path, "ADMISSIONS", stays)
    cohort = read_cohort(tmp_path, 24)
    assert cohort.admissions.tolist() == [12, 15, 16, 31]
    assert cohort.patients.tolist() == [1, 1, 1, 3]
    assert cohort.died.tolist() == [0, 0, 0, 1]
    assert cohort.context[0] == pytest.approx([50.16, 1], abs=0.01)
    assert cohort.context[3].tolist() == [90, 0]  # older than 89 is 300 in the tables
    assert read_cohort(tmp_path, 9).admissions.tolist() == [12, 13, 14, 15, 16, 31]


# ---------------------------------------------------------------------- what


def events_of(root, tables, hours=24.0):
    cohort = read_cohort(root, hours)
    events = read_events(root, cohort, hours, tables)
    names = [events.names[key] for key in events.keys]
    return [
        (int(cohort.admissions[owner]), round(float(hour), 3), name, None if np.isnan(value) else float(value))
        for owner, hour, name, value in zip(events.owners, events.hours, names, events.values, strict=True)
    ]


def test_labs_from_admission_to_prediction(tmp_path):
    rows = [
        lab(10, 50971, "2150-03-01 09:59:59", "4.1", 4.1),  # before admission
        lab(10, 50971, "2150-03-01 10:00:00", "4.2", 4.2),
        lab(10, 50971, "2150-03-02 09:30:00", "4.3", 4.3),
        lab(10, 50971, "2150-03-02 10:00:00", "4.4", 4.4),  # at the prediction
        lab(None, 50971, "2150-03-01 11:00:00", "4.5", 4.5),  # an out-patient
        lab(11, 50971, "2150-03-01 11:00:00", "4.6", 4.6),  # not in the study
        lab(10, 51463, "2150-03-01 11:00:00", "NEG, OR FEW"),
        lab(10, 51463, "2150-03-01 11:00:00"),
        lab(10, 51463, None, "NEG"),
    ]
    one_stay(tmp_path, rows)
    assert events_of(tmp_path, ["labevents"]) == [
        (10, 0.0, "lab:50971", pytest.approx(4.2)),
        (10, 23.5, "lab:50971", pytest.approx(4.3)),
        (10, 1.0, "lab:51463=NEG, OR FEW", None),
        (10, 1.0, "lab:51463", None),
    ]
    assert len(events_of(tmp_path, ["labevents"], hours=48)) == 5


def test_charts_without_what_was_marked_as_an_error(tmp_path):
    chart = lab(10, 220045, "2150-03-01 11:00:00", "90", 90)
    one_stay(
        tmp_path, chartevents=[chart | {"ERROR": 0}, chart | {"ERROR": 1, "VALUENUM": 900}, chart | {"VALUENUM": 91}]
    )
    assert events_of(tmp_path, ["chartevents"]) == [(10, 1.0, "chart:220045", 90), (10, 1.0, "chart:220045", 91)]


def test_prescriptions_count_from_the_end_of_their_day(tmp_path):
    def drug(date, name):
        return {"SUBJECT_ID": 1, "HADM_ID": 10, "STARTDATE": f"{date} 00:00:00", "DRUG": name}

    rows = [drug("2150-02-28", "Old"), drug("2150-03-01", " Aspirin"), drug("2150-03-02", "Morphine")]
    one_stay(tmp_path, prescriptions=rows)
    assert events_of(tmp_path, ["prescriptions"]) == [(10, 14.0, "drug:aspirin", None)]
    assert [event[1:3] for event in events_of(tmp_path, ["prescriptions"], 48)][1:] == [(38.0, "drug:morphine")]


def test_a_large_table_comes_in_batches(tmp_path):
    rows = [lab(10, 50971 + i % 3, "2150-03-01 11:00:00", f"{i}", i) for i in range(60_000)]
    one_stay(tmp_path, rows)
    assert len(list(read_batches(tmp_path, "LABEVENTS", {"HADM_ID": "int64"}))) > 1
    events = read_events(tmp_path, read_cohort(tmp_path, 24), 24, ["labevents"])
    assert events.values.tolist() == list(range(60_000))
    assert [events.names[key] for key in events.keys[-3:]] == ["lab:50971", "lab:50972", "lab:50973"]


# ---------------------------------------------------------------------- the loader


@pytest.mark.parametrize("place", [".", "mimic3", "mimic-iii-clinical-database-1.4"])
@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
@pytest.mark.parametrize("header", [str, str.lower])
def test_the_tables_are_found(place, ending, header, tmp_path):
    hospital(tmp_path / place, ending, header)
    data = load_mimic3(tmp_path, validation=4, test=5)
    assert sum(len(part) for part in (data.train, data.validation, data.test)) == 21
    assert data.task.vocabulary == 4


def test_inputs_are_those_of_the_training_patients(tmp_path):
    hospital(tmp_path)
    data = load_mimic3(tmp_path, codes=1, validation=4, test=5)
    # Rows are admissions 1000, 1001, ...: potassium has the most numbers; the others are tokens.
    assert data.preparation.variables == ["lab:50971", *sorted(["lab:50912", "lab:51463=NEG"], key=order_in(data))]
    training = np.array([4 + i / 10 for i in data.train.rows.tolist()])
    low, high = np.quantile(training, [0.001, 0.999])
    kept = training.clip(low, high)
    for part in (data.train, data.validation, data.test):
        raw, targets = part.fetch(torch.arange(len(part)))
        times, variables, values, context = data.preparation(*raw)
        rows = part.rows.numpy()
        assert targets.tolist() == [i % 2 if i else 0 for i in rows]
        expected = ((4 + rows / 10).clip(low, high) - kept.mean()) / kept.std()
        np.testing.assert_allclose(values[:, 0], expected, rtol=1e-4, atol=1e-5)
        assert not values[:, 1:].any()
        for row, i in enumerate(rows.tolist()):
            names = [data.preparation.variables[v - 1] for v in variables[row].tolist() if v]
            assert names == ["lab:50971", *["lab:51463=NEG"] * (i % 3 == 0), *["lab:50912"] * (i % 2 == 0)]
        assert times.max() < 24
        assert context.shape == (len(part), 2)
        assert context.isfinite().all()


def order_in(data):
    rows = data.train.rows.numpy()
    counts = {"lab:50912": (rows % 2 == 0).sum(), "lab:51463=NEG": (rows % 3 == 0).sum()}
    return lambda name: (-counts[name], name)


def test_a_patient_is_in_one_part_only(tmp_path):
    hospital(tmp_path)
    splits = set()
    for seed in range(5):
        data = load_mimic3(tmp_path, validation=4, test=5, seed=seed)
        parts = [set(part.rows.tolist()) for part in (data.train, data.validation, data.test)]
        assert sorted(row for part in parts for row in part) == list(range(21))
        assert any({0, 1} <= part for part in parts)  # both stays of patient 1
        assert data.train.rows.tolist() == load_mimic3(tmp_path, validation=4, test=5, seed=seed).train.rows.tolist()
        splits.add(tuple(data.train.rows.tolist()))
    assert len(splits) > 1


def test_the_last_events_are_kept(tmp_path):
    hospital(tmp_path)
    data = load_mimic3(tmp_path, max_events=1, validation=4, test=5)
    row = data.train.rows.tolist().index(next(i for i in data.train.rows.tolist() if i % 2 == 0))
    (times, variables, _, _), _ = data.train.fetch(torch.tensor([row]))
    assert times.shape == (1, 1)
    assert data.preparation.variables[variables.item() - 1] == "lab:50912"


def test_prediction_does_what_training_did(tmp_path):
    hospital(tmp_path)
    data = load_mimic3(tmp_path, validation=4, test=5)
    again = get_preparation(json.loads(json.dumps(data.preparation.spec())))
    raw = again.read(tmp_path)
    assert raw.names == [str(1000 + i) for i in range(21)]
    expected = data.preparation(*data.train.source.fetch(torch.arange(21))[0])
    for found, wanted in zip(again(*raw.inputs), expected, strict=True):
        torch.testing.assert_close(found, wanted)
    net = RecordClassifier(data.task.vocabulary, context=2, bags=1, bag_hours=24, embedding=4, hidden=4, dense=4)
    assert net(*expected).shape == (21, 1)


@pytest.mark.parametrize("missing", ["PATIENTS", "ADMISSIONS", "LABEVENTS"])
def test_missing_tables_say_what_to_do(missing, tmp_path):
    hospital(tmp_path / "mimic3")
    (tmp_path / "mimic3" / f"{missing}.csv").unlink()
    with pytest.raises(MissingData) as error:
        load_mimic3(tmp_path if missing != "ADMISSIONS" else tmp_path / "mimic3")
    for word in (f"{missing}.csv", str(tmp_path), "--data-dir", "SLIMBAYES_DATA", "credentialed", "https://physionet"):
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("table", "text", "words"),
    [
        ("LABEVENTS", "ROW_ID,HADM_ID,ITEMID\n", ["LABEVENTS.csv", "lacks CHARTTIME, VALUE, VALUENUM"]),
        ("PATIENTS", "SUBJECT_ID,GENDER,DOB\none,M,2100-01-01 00:00:00\n", ["PATIENTS.csv", "one"]),
        ("PATIENTS", "SUBJECT_ID,GENDER,DOB\n", ["PATIENTS.csv", "no rows"]),
        ("PATIENTS", "SUBJECT_ID,GENDER,DOB\n5,M,2100-01-01 00:00:00\n", ["SUBJECT_ID 1 that PATIENTS lacks"]),
        ("PATIENTS", "SUBJECT_ID,GENDER,DOB\n1,M,2149-01-01 00:00:00\n", ["no adult", "24 hours"]),
    ],
)
def test_broken_tables_are_named(table, text, words, tmp_path):
    one_stay(tmp_path)
    (tmp_path / f"{table}.csv").write_text(text)
    with pytest.raises(ValueError, match=".") as error:
        load_mimic3(tmp_path, validation=0, test=0)
    for word in words:
        assert word in str(error.value)


def test_a_cut_gzip_file_is_named(tmp_path):
    hospital(tmp_path, ".csv.gz")
    path = tmp_path / "LABEVENTS.csv.gz"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match="LABEVENTS.csv.gz is"):
        load_mimic3(tmp_path)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"hours": 0}, "`hours`"),
        ({"tables": ["labs"]}, "Did you mean 'labevents'"),
        ({"codes": -1}, "`codes`"),
        ({"max_events": 0}, "`max_events`"),
        ({"validation": 10, "test": 10}, "leave rows to train on"),
    ],
)
def test_arguments_that_make_no_sense(options, word, tmp_path):
    hospital(tmp_path)
    with pytest.raises(ValueError, match=word):
        load_mimic3(tmp_path, **options)
