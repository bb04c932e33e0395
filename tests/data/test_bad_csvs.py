"""Each odd CSV file is read right, or is a clear error that names the file, the place and the remedy."""

import csv
import io

import numpy as np
import pytest
from typer.testing import CliRunner

from slimbayes._files import csv_cell
from slimbayes.cli.app import app
from slimbayes.cli.predict import _as_csv
from slimbayes.data.table import load_table
from slimbayes.training import fit

pytestmark = pytest.mark.filterwarnings("ignore:.*(decimal commas|dropped|left out)")

ROWS = "".join(f"{number},{number / 4},{'ab'[number % 2]}\n" for number in range(12))
GOOD = "n,x,y\n" + ROWS

#: What the file holds, and words of the error.
BAD = {
    "empty": ("", ["it is empty"]),
    "blank": ("\n\n", ["it is empty"]),
    "a header alone": ("n,x,y\n", ["'y' has no value in any row"]),
    "a row that is too long": (GOOD + "1,2,a,4\n", ["my.csv", "Expected 3 columns, got 4"]),
    "a row that is too short": (GOOD + "1,2\n", ["my.csv", "Expected 3 columns, got 2"]),
    "a name given twice": (GOOD.replace("x", "n", 1), ["two columns called 'n'", "Rename one"]),
    "no name": (GOOD.replace("x", " ", 1), ["no name for its column 2", "in the header"]),
    "inf": (GOOD + "3,inf,a\n", ["'x' has 'inf' in row 12", "leave the field empty"]),
    "-Infinity": (GOOD + "3,-Infinity,a\n", ["'x' has '-Infinity' in row 12", "leave the field empty"]),
    "1e400": (GOOD + "1e400,1,a\n", ["'n' has '1e400' in row 12", "too large for single precision"]),
    "inf below a row without a target": (GOOD + "1,1,\n3,inf,a\n", ["'x' has 'inf' in row 13"]),
    "Latin-1": (GOOD.encode() + "1,2,é\n".encode("latin-1"), ["line 14", "0xe9", "Save it as UTF-8", "iconv"]),
    "UTF-16": (GOOD.encode("utf-16"), ["line 1", "Save it as UTF-8"]),
    "one class": (GOOD.replace(",b", ",a"), ["at least two classes", "a"]),
    "thousands and decimals": (
        GOOD.replace(",", ";") + "1.234,5;1;a\n",
        ["column 'n'", "'1.234,5'", "Write them with a decimal point"],
    ),
    "thousands": (GOOD + '"1,234",1,a\n', ["column 'n'", "'1,234'", "Write them with a decimal point"]),
    "names instead of numbers": (
        "n,x,y\n" + "".join(f"name{number},{number},{'ab'[number % 2]}\n" for number in range(300)),
        ["'n' has", "different texts", "List it in `ignore`"],
    ),
    "a number with a percent sign": (GOOD + "12%,1,a\n", ["'n' has '12%' in row 12", "most of its values are numbers"]),
    "a word among numbers": (
        GOOD + "none,1,a\n",
        ["'n' has 'none' in row 12", "leave the field empty", "`categorical`"],
    ),
    **{
        f"numbers such as {first}": (
            "n,x,y\n" + "".join(f"{write(number)},1,{number}\n" for number in range(100)),
            ["'n' has numbers such as", "a decimal point alone", "`categorical`"],
        )
        for first, write in {
            "0%": "{}%".format,
            "$ 0": "$ {}".format,
            "1'000": "1'{:03d}".format,
            "1 000": "1 {:03d}".format,
            "a typesetter's minus": "\u2212{}".format,
        }.items()
    },
    "no such target": (GOOD.replace("y", "z", 1), ["`target`", "'n', 'x', 'z'", "'y'"]),
    "a page instead of a file": ("<html><body>404</body></html>", ["`target`", "<html>"]),
    "a number of Python": (GOOD + "1_000,1,a\n", ["'n' has '1_000' in row 12"]),
    "a byte of zero": (GOOD.replace("\n7,", "\n7\0,"), ["'n' has '7\\x00' in row 7"]),
    "a word among targets": (
        "n,x,y\n" + "".join(f"{row},1,{row / 8}\n" for row in range(12)) + "1,1,abc\n",
        ["'y' has 'abc' in row 12", "most of its values are numbers"],
    ),
    "a day that is none": (
        "n,x,y\n" + "".join(f"2020-01-{10 + row},1,{'ab'[row % 2]}\n" for row in range(12)) + "2020-13-01,1,a\n",
        ["'n' has '2020-13-01' in row 12", "most of its values are dates"],
    ),
    "a quote that is not closed": ('"n,x,y\n' + ROWS, ["my.csv cannot be read as CSV", "save it as CSV again"]),
    "line breaks of old Macs": (GOOD.replace("\n", "\r"), ["my.csv cannot be read as CSV: new-line", "save it as CSV"]),
    "bytes of something else": (b"\x89PNG\r\n\x1a\n\x00\x00", ["my.csv", "not UTF-8"]),
}


def test_there_are_many():
    assert len(BAD) >= 16


@pytest.mark.parametrize("name", BAD)
def test_bad_csv(tmp_path, name):
    content, words = BAD[name]
    (tmp_path / "my.csv").write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ValueError, match=r"my\.csv") as caught:
        load_table(tmp_path, path="my.csv", target="y")
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)


#: Spellings of one table.
ODD = {
    "with a byte order mark": GOOD.encode("utf-8-sig"),
    "of Windows": GOOD.replace("\n", "\r\n").encode(),
    "with blanks": GOOD.replace(",", " , ").encode(),
    "quoted": "".join(",".join(f'"{cell}"' for cell in line.split(",")) + "\n" for line in GOOD.splitlines()).encode(),
    "with tabs": GOOD.replace(",", "\t").encode(),
    "with semicolons": GOOD.replace(",", ";").encode(),
    "with semicolons and decimal commas": GOOD.replace(",", ";").replace(".", ",").encode(),
    "with tabs and decimal commas": GOOD.replace(",", "\t").replace(".", ",").encode(),
    "without a last line break": GOOD.rstrip("\n").encode(),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_csv_is_the_same_table(tmp_path, name):
    (tmp_path / "my.csv").write_text(GOOD)
    expected = load_table(tmp_path, path="my.csv", target="y")
    (tmp_path / "my.csv").write_bytes(ODD[name])
    found = load_table(tmp_path, path="my.csv", target="y")
    assert found.preparation.spec() == expected.preparation.spec()
    assert found.task == expected.task
    np.testing.assert_array_equal(found.train.inputs[0], expected.train.inputs[0])


def test_decimal_commas_are_said_and_lists_of_codes_stay_texts(tmp_path):
    (tmp_path / "my.csv").write_text("n;y\n0,5;a\n1;b\n-,25;a\n2e-1;b\n")
    with pytest.warns(UserWarning, match=r"the numbers of 'n' have decimal commas"):
        data = load_table(tmp_path, path="my.csv", target="y", validation=0, test=0)
    assert data.preparation.columns[0].mean == pytest.approx((0.5 + 1 - 0.25 + 0.2) / 4)
    (tmp_path / "my.csv").write_text('n,y\n"1,2,3",a\n"4,5,6",b\n"1,2,3",a\n"4,5,6",b\n')
    data = load_table(tmp_path, path="my.csv", target="y", validation=0, test=0)
    assert data.preparation.columns[0].categories == ["1,2,3", "4,5,6"]


def test_codes_of_few_numbers_or_as_said_are_names(tmp_path):
    rows = [f"{'123x'[row % 4]},{row if row else '0A'},{'ab'[row % 2]}" for row in range(20)]
    (tmp_path / "my.csv").write_text("\n".join(["few,said,y", *rows]) + "\n")
    data = load_table(tmp_path, path="my.csv", target="y", categorical=["said"], validation=0, test=0)
    few, said = data.preparation.columns
    assert few.categories == ["1", "2", "3", "x"]
    assert len(said.categories) == 20
    with pytest.raises(ValueError, match=r"'said' has '0A' in row 0.*list 'said' in `categorical`"):
        load_table(tmp_path, path="my.csv", target="y")


@pytest.mark.parametrize("cell", ["inf", "1e400", "-inf"])
def test_predict_refuses_what_training_refuses(tmp_path, cell):
    (tmp_path / "my.csv").write_text(GOOD)
    config = {"data": {"name": "table", "path": str(tmp_path / "my.csv"), "target": "y"}, "net": "mlp", "epochs": 1}
    run = fit({**config, "net": {"name": "mlp", "hidden": [4]}}, tmp_path / "run", quiet=True)
    (tmp_path / "new.csv").write_text(f"n,x\n1,2\n3,{cell}\n")
    result = CliRunner().invoke(app, ["predict", str(run.folder), str(tmp_path / "new.csv")])
    told = " ".join(result.stderr.split())
    assert result.exit_code == 2
    assert f"new.csv: Column 'x' has '{cell}' in row 1" in told
    assert result.stdout == ""


def test_predictions_carry_no_formula():
    columns = {
        "name": np.array(["=cmd|x.png", "-1", "+1e3", "@here", "plain", "-x", "\t=1"]),
        "p_=1+cmd|' !A0": np.arange(7) - 3.5,
        "=p": np.arange(7),
    }
    header, *rows = csv.reader(io.StringIO(_as_csv(columns)))
    assert header == ["name", "p_=1+cmd|' !A0", "'=p"]
    assert [row[0] for row in rows] == ["'=cmd|x.png", "-1", "+1e3", "'@here", "plain", "'-x", "'\t=1"]
    assert [float(row[1]) for row in rows] == (np.arange(7) - 3.5).tolist()
    assert csv_cell(-1) == -1
