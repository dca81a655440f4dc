"""Profiles: what they say, where they are wrong, and that nothing in one can reach a shell unquoted."""

from __future__ import annotations

from pathlib import Path

import pytest

from looprepro.files.errors import ConfigError
from looprepro.launch.profile import Profile, available_profiles, load_profile, time_limit_seconds

MINIMAL = {"partition": "gpu", "memory": "64G", "time": '"1:00:00"'}
HOSTILE = [
    "a b",
    "a'b",
    'a"b',
    "a;id",
    "$(id)",
    "`id`",
    "a\nb",
    "-p",
    "--uid=0",
    "",
    "a\\b",
    "a#b",
    "a\tb",
    "a|b",
    "a>b",
    "a&b",
    "~",
    "a*",
]


def write(folder: Path, **keys: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in {**MINIMAL, **keys}.items()))
    return path


def test_the_reference_profile_asks_for_one_h100() -> None:
    profile = load_profile("h100")
    assert profile.name == "h100"
    assert profile.gres == "gpu:h100:1"
    assert profile.seconds == 12 * 3600


def test_every_shipped_profile_loads() -> None:
    assert {"h100", "test"} <= set(available_profiles())
    assert [load_profile(name).name for name in available_profiles()] == available_profiles()


def test_a_profile_is_found_by_its_path(tmp_path: Path) -> None:
    profile = load_profile(str(write(tmp_path, gpus="2", account="lab", modules="[cuda/12.8]")))
    assert (profile.name, profile.gres, profile.account, profile.modules) == ("mine", "gpu:2", "lab", ("cuda/12.8",))


def test_without_gpus_no_gres_is_asked_for(tmp_path: Path) -> None:
    assert load_profile(str(write(tmp_path, gpus="0"))).gres is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("1:30", 90), ("12:00:00", 43200), ("2-0", 172800), ("1-12:30", 131400), ("1-02:03:04", 93784)],
)
def test_time_limits_are_read_as_slurm_reads_them(text: str, seconds: int) -> None:
    assert time_limit_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "1:2:3:4", "12h", "-5", "1-", "00:00:00", "12:00:00; id"])
def test_what_is_not_a_time_limit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="time"):
        time_limit_seconds(text)


def test_a_misspelt_key_is_named_with_file_line_and_nearest_key(tmp_path: Path) -> None:
    path = write(tmp_path, partiton="gpu")
    with pytest.raises(ConfigError, match=r"mine\.yaml:4: unknown key 'partiton' \(did you mean 'partition'\?\)") as caught:
        load_profile(str(path))
    assert caught.value.exit_code == 2


def test_the_profile_of_several_ranks_is_a_file_beside_it(tmp_path: Path) -> None:
    path = write(tmp_path, several_ranks="wide")
    with pytest.raises(ConfigError, match=r"mine\.yaml:4: no profile 'wide' beside this one"):
        load_profile(str(path))
    (tmp_path / "wide.yaml").write_text(path.read_text().replace("several_ranks: wide", "gpus: 8"))
    profile = load_profile(str(path))
    assert (profile.of(1).name, profile.of(8).name, profile.of(8).gpus) == ("mine", "wide", 8)
    assert load_profile("h100x8").of(8).name == "h100x8"
    (tmp_path / "wide.yaml").write_text(path.read_text().replace("several_ranks: wide", "several_ranks: mine"))
    with pytest.raises(ConfigError, match=r"wide\.yaml:4: mine names this profile for cells with several ranks"):
        load_profile(str(path))


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("partition: gpu\nmemory: 1G\n")
    with pytest.raises(ConfigError, match="key 'time' is missing"):
        load_profile(str(path))


def test_a_time_that_yaml_reads_as_a_number_gets_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"mine\.yaml:3: time: .*Quote"):
        load_profile(str(write(tmp_path, time="12:00:00")))


def test_an_unknown_name_lists_the_known_ones_and_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown profile 'h10O' \(did you mean 'h100'\?\).*h100, "):
        load_profile("h10O")


@pytest.mark.parametrize(
    "text", ["", "- a\n", "partition: [\n", "partition: a\npartition: b\n", "name: x\n", "!!python/object:os.system {}\n"]
)
def test_a_file_that_is_no_profile_is_one_line_of_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"mine\.yaml:\d+: ") as caught:
        load_profile(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["partition", "account", "qos", "gpu_type", "reservation", "exclude", "memory", "time"])
@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_value_is_refused_in_one_line(key: str, value: str) -> None:
    with pytest.raises(ValueError, match=key):
        Profile.model_validate({"name": "x", "partition": "gpu", "memory": "1G", "time": "60", key: value})


@pytest.mark.parametrize("value", [one for one in HOSTILE if one not in ("a|b", "a&b", "a*")])
def test_a_hostile_constraint_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="constraint"):
        Profile.model_validate({"name": "x", "partition": "gpu", "memory": "1G", "time": "60", "constraint": value})


@pytest.mark.parametrize("name", ["-rf", "a b", "$(id)", "a;b", "a'b"])
def test_a_hostile_file_name_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.yaml"
    path.write_text(write(tmp_path).read_text())
    with pytest.raises(ConfigError, match="not a profile name"):
        load_profile(str(path))


@pytest.mark.parametrize("key", ["setup", "container"])
def test_a_list_item_of_several_lines_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=key):
        Profile.model_validate({"name": "x", "partition": "gpu", "memory": "1G", "time": "60", key: ["one\ntwo"]})


def test_an_environment_variable_with_a_hostile_name_is_refused() -> None:
    with pytest.raises(ValueError, match="not a variable name"):
        Profile.model_validate(
            {"name": "x", "partition": "gpu", "memory": "1G", "time": "60", "environment": {"A=1;id #": "x"}}
        )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("gpus", -1),
        ("cpus", 0),
        ("cells_per_job", 0),
        ("max_array_size", 1),
        ("array_parallelism", 0),
        ("poll_seconds", 0.0),
        ("signal_lead", 3600),
    ],
)
def test_impossible_numbers_are_refused(key: str, value: float) -> None:
    with pytest.raises(ValueError, match=key):
        Profile.model_validate({"name": "x", "partition": "gpu", "memory": "1G", "time": "60", key: value})


def test_a_gpu_type_without_gpus_is_refused() -> None:
    with pytest.raises(ValueError, match="gpu_type is set but gpus is 0"):
        Profile.model_validate({"name": "x", "partition": "gpu", "memory": "1G", "time": "60", "gpus": 0, "gpu_type": "h100"})
