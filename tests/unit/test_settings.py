"""Do settings come from the environment as meant, and does a bad one say which it is?"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from redisworld.errors import InvalidInput
from redisworld.settings import Settings


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("LEASE", "LEASE_MS"),
        ("RETENTION", "RETENTION_MS"),
        ("GRACE_S", "GRACE_MS"),
        ("CONCURENCY", "CONCURRENCY"),
        ("PARTITION", "PARTITIONS"),
        ("NAME_SPACE", "NAMESPACE"),
    ],
)
def test_a_variable_that_was_meant_for_a_setting_is_refused_by_the_name_of_that(slip: str, meant: str) -> None:
    with pytest.raises(InvalidInput, match=f"REDISWORLD_{slip} is no setting: REDISWORLD_{meant} is"):
        Settings.from_env({f"REDISWORLD_{slip}": "5"})


@pytest.mark.parametrize(
    "others",
    ["URL2", "TIMEOUT", "WORKERS", "QUEUE", "LOG_LEVEL", "METRICS_PORT", "SERVICE_HOST", "PORT", "PORT_6379_TCP"],
)
def test_variables_of_options_of_kubernetes_and_of_others_are_left_alone(others: str) -> None:
    assert Settings.from_env({f"REDISWORLD_{others}": "5"}) == Settings()


def test_a_lease_is_long_enough_to_be_renewed() -> None:
    with pytest.raises(InvalidInput, match="lease_ms must be at least 100, not 99"):
        Settings.from_env({"REDISWORLD_LEASE_MS": "99"})


def test_an_empty_environment_gives_the_defaults() -> None:
    assert Settings.from_env({}) == Settings()


def test_the_defaults_are_in_order() -> None:
    settings = Settings()

    settings.check()
    assert settings.grace_ms < 30_000, "Kubernetes kills after 30 s"
    assert settings.retry_redis_ms < settings.lease_ms, "else a call is repeated by somebody who lost the lease"


def test_every_setting_has_a_variable() -> None:
    texts = {
        "url": "redis://elsewhere:6380/3",
        "username": "kim",
        "password": "p/w@d",
        "sentinel_password": "s",
        "namespace": "shop",
        "partitions": "8",
        "deployment": "blue",
        "affinity": "true",
        "max_inline_steps": "0",
    }
    environ = {
        f"REDISWORLD_{field.name.upper()}": texts.get(field.name, "177") for field in msgspec.structs.fields(Settings)
    }

    settings = Settings.from_env(environ)

    assert settings.url == "redis://elsewhere:6380/3"
    assert (settings.namespace, settings.partitions, settings.deployment) == ("shop", 8, "blue")
    assert settings.affinity is True
    assert settings.max_inline_steps == 0
    numbers = {name: value for name, value in msgspec.structs.asdict(settings).items() if name not in texts}
    assert set(numbers.values()) == {177}


@pytest.mark.parametrize(("text", "ms"), [("45000", 45_000), ("45s", 45_000), ("1m 30s", 90_000)])
def test_a_duration_is_milliseconds_or_text(text: str, ms: int) -> None:
    assert Settings.from_env({"REDISWORLD_LEASE_MS": text}).lease_ms == ms


def test_an_empty_variable_counts_as_absent() -> None:
    assert Settings.from_env({"REDISWORLD_CONCURRENCY": ""}) == Settings()


def test_an_override_wins_unless_it_is_none() -> None:
    environ = {"REDISWORLD_CONCURRENCY": "5", "REDISWORLD_NAMESPACE": "shop"}

    settings = Settings.from_env(environ, concurrency=9, namespace=None)

    assert (settings.concurrency, settings.namespace) == (9, "shop")


def test_an_overridden_variable_is_not_even_read() -> None:
    assert Settings.from_env({"REDISWORLD_CONCURRENCY": "many"}, concurrency=9).concurrency == 9


def test_an_unknown_override_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="no setting concurency"):
        Settings.from_env({}, concurency=9)


def test_the_process_environment_is_the_default_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDISWORLD_NAMESPACE", "from-process")

    assert Settings.from_env().namespace == "from-process"


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("REDISWORLD_CONCURRENCY", "many"),
        ("REDISWORLD_CONCURRENCY", "1.5"),
        ("REDISWORLD_LEASE_MS", "soon"),
        ("REDISWORLD_LEASE_MS", "-5"),
        ("REDISWORLD_AFFINITY", "perhaps"),
        ("REDISWORLD_PARTITIONS", "four"),
    ],
)
def test_a_variable_that_cannot_be_read_is_named_with_its_text(variable: str, text: str) -> None:
    with pytest.raises(InvalidInput, match=f"{variable}='{text}'"):
        Settings.from_env({variable: text})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("concurrency", 0),
        ("replay_concurrency", -1),
        ("lease_ms", 0),
        ("max_deliveries", 0),
        ("max_log_events", 0),
        ("redis_timeout_ms", 0),
        ("max_inline_steps", -1),
        ("max_inline_steps", 2),
        ("retention_ms", -1),
        ("partitions", 0),
        ("partitions", 257),
        ("namespace", ""),
        ("namespace", "a:b"),
        ("namespace", "{a}"),
        ("namespace", "a b"),
        ("deployment", "a@b"),
        ("namespace", "a\ud800"),
        ("deployment", "a\x00b"),
        ("deployment", "a|b"),
        ("namespace", "a" * 257),
        ("concurrency", "4"),
        ("lease_ms", 1.5),
        ("affinity", "no"),
        ("url", b"redis://localhost"),
    ],
)
def test_a_value_that_cannot_work_is_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=f"setting {name} must be"):
        Settings.from_env({}, **{name: value})


NUMBERS = [field.name for field in msgspec.structs.fields(Settings) if isinstance(field.default, int)]


@pytest.mark.parametrize("name", [name for name in NUMBERS if name != "affinity"])
def test_a_number_that_no_script_takes_is_named(name: str) -> None:
    """A retention of 16 digits used to be taken, and then each run hung at its end, refused by its last script."""
    with pytest.raises(InvalidInput, match=f"setting {name} must be"):
        Settings.from_env({f"REDISWORLD_{name.upper()}": "9" * 18})


def test_a_hundred_years_and_a_thousand_million_are_allowed() -> None:
    settings = Settings.from_env({"REDISWORLD_RETENTION_MS": "100w", "REDISWORLD_MAX_LOG_EVENTS": "1000000000"})

    assert (settings.retention_ms, settings.max_log_events) == (100 * 7 * 86_400_000, 1_000_000_000)


@pytest.mark.parametrize("name", ["username", "password", "sentinel_password"])
def test_a_secret_that_was_written_with_a_line_break_is_named(name: str) -> None:
    """A secret of Kubernetes made with ``echo``; Redis says only that it is wrong."""
    with pytest.raises(InvalidInput, match=f"setting {name} ends with a line break"):
        Settings.from_env({f"REDISWORLD_{name.upper()}": "s3cret\n"})


def test_affinity_needs_a_deployment() -> None:
    with pytest.raises(InvalidInput, match="REDISWORLD_DEPLOYMENT"):
        Settings.from_env({"REDISWORLD_AFFINITY": "1"})

    assert Settings.from_env({"REDISWORLD_AFFINITY": "1", "REDISWORLD_DEPLOYMENT": "blue"}).affinity


@pytest.mark.parametrize("name", ["max_inline_steps", "grace_ms", "retry_redis_ms", "retention_ms"])
def test_zero_is_allowed_where_it_means_none(name: str) -> None:
    assert getattr(Settings.from_env({f"REDISWORLD_{name.upper()}": "0"}), name) == 0


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Settings().concurrency = 1  # type: ignore[misc]
