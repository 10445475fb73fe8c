"""The shipped rules, unit-tested by promtool: each alert fires when it must, not when it must not, and resolves.

Series are samples a minute apart of two replicas, `a` and `b`; the state of both is the same, as the store says it.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from tests.support.monitoring import needed

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "deploy" / "prometheus"
RULE_FILES = tuple(sorted([*SHIPPED.glob("rules/*.yml"), *SHIPPED.glob("fallback/*.yml")]))
RUNBOOKS = ROOT / "docs" / "runbooks"
BASE = "https://coalmine.example/runbooks"
OF_JOB = {"job": "coalmine"}
OF_CHECK = {**OF_JOB, "check": "docs", "suite": "docs", "retriever": "search"}
OF_HOOK = {**OF_JOB, "hook": "ops"}


def rules(*files: Path) -> list[dict[str, Any]]:
    """Give every rule of these files."""
    read = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in files]
    return [rule for one in read for group in one["groups"] for rule in group["rules"]]


ALERTS = [rule for rule in rules(*RULE_FILES) if "alert" in rule]
NAMES = sorted({rule["alert"] for rule in ALERTS})


def series(name: str, values: str, replicas: Sequence[str] = ("a", "b"), **labels: str) -> list[dict[str, str]]:
    """Describe a series of every replica."""
    found = []
    for replica in replicas:
        pairs = {**OF_JOB, "instance": replica, "pod": f"coalmine-{replica}", **labels}
        inside = ",".join(f'{label}="{value}"' for label, value in pairs.items())
        found.append({"series": f"{name}{{{inside}}}", "values": values})
    return found


def of_check(name: str, values: str, **labels: str) -> list[dict[str, str]]:
    return series(name, values, **{**OF_CHECK, **labels})


def firing(alert: str, labels: Mapping[str, str], value: str = "", *, severity: str = "") -> dict[str, Any]:
    """Describe an alert that fires, with what its rule says of it; `value` as people read it."""
    (rule,) = [one for one in ALERTS if one["alert"] == alert and severity in {"", one["labels"]["severity"]}]

    def filled(text: str) -> str:
        text = re.sub(r"{{ \$labels\.(\w+) }}", lambda found: labels[found[1]], text)
        return re.sub(r"{{ \$value \| \w+ }}", value, text)

    annotations = {name: filled(text) for name, text in rule["annotations"].items()}
    return {"exp_labels": {**labels, **rule["labels"]}, "exp_annotations": annotations}


def promtool(folder: Path, alert: str, *cases: tuple[list[list[dict[str, str]]], Mapping[str, list[Any]]]) -> None:
    """Hold the rules against cases: series, and by minute the alerts of this name that fire then, all of them."""
    tests = [
        {
            "interval": "1m",
            "input_series": [one for listed in given for one in listed],
            "alert_rule_test": [
                {"eval_time": minute, "alertname": alert, "exp_alerts": expected}
                for minute, expected in expectations.items()
            ],
        }
        for given, expectations in cases
    ]
    file = folder / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(one) for one in RULE_FILES], "tests": tests}), encoding="utf-8")
    run_promtool("test", "rules", file)


def run_promtool(*arguments: object) -> str:
    done = subprocess.run(  # noqa: S603 - a program found on the path, given our own files
        [needed("promtool"), *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# --- the files themselves ------------------------------------------------------------------------------------


@pytest.mark.systems
def test_promtool_takes_the_rules() -> None:
    assert run_promtool("check", "rules", *RULE_FILES).count("SUCCESS") == len(RULE_FILES) == 3


def test_an_alert_has_all_that_people_need() -> None:
    for rule in ALERTS:
        assert re.fullmatch(r"Coalmine([A-Z][a-z]+)+", rule["alert"]), rule
        assert rule["labels"]["severity"] in {"critical", "warning"}, rule
        assert rule["labels"]["service"] == "coalmine", rule
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}, rule
        summary, description = rule["annotations"]["summary"], rule["annotations"]["description"]
        about = next(name for name in ("hook", "check", "job") if f"{{{{ $labels.{name} }}}}" in description)
        assert summary.startswith(f"{{{{ $labels.{about} }}}}: "), "a summary begins with the name of what it is about"
        assert "$value" not in summary, "a summary stays the same while an alert fires"
        assert "{{ $labels." in rule["annotations"]["description"], rule
        assert rule["annotations"]["runbook_url"] == f"{BASE}/{rule['alert']}.md", rule
        assert rule["for"], rule
        assert (RUNBOOKS / f"{rule['alert']}.md").is_file(), rule


def test_no_expression_tells_replicas_apart() -> None:
    for rule in rules(*RULE_FILES):
        outermost = promql_parser.parse(rule["expr"])
        assert outermost is not None, rule
        inner = re.findall(r"by \(([^)]*)\)", rule["expr"])
        assert inner, "aggregated"
        counted = [one for one in inner if "instance" in one]
        assert not counted or rule["alert"] == "CoalmineReplicasDisagree", "which counts what each of them sees"


@pytest.mark.systems
def test_the_fallback_is_off_until_one_line_switches_it_on(tmp_path: Path) -> None:
    folder = tmp_path / "prometheus"
    shutil.copytree(SHIPPED, folder)
    (folder / "token").write_text("x", encoding="utf-8")
    config, switch = folder / "prometheus.yml", "# - fallback/*.yml"
    shipped = config.read_text(encoding="utf-8").replace("/run/secrets/metrics_token", "token")
    assert shipped.count(switch) == 1
    for text, files in ((shipped, 2), (shipped.replace(switch, switch.removeprefix("# ")), 3)):
        config.write_text(text, encoding="utf-8")
        assert f"SUCCESS: {files} rule files found" in run_promtool("check", "config", config)


# --- alerts --------------------------------------------------------------------------------------------------


@pytest.mark.systems
def test_down_is_when_no_replica_can_be_scraped(tmp_path: Path) -> None:
    down = firing("CoalmineDown", OF_JOB)
    one_left = [series("up", "0x20", ["a"]), series("up", "1x20", ["b"])]
    both = [series("up", "1x5 0x10 1x9")]
    promtool(
        tmp_path,
        "CoalmineDown",
        ([], {"1m": [], "3m": [down]}),  # not even a target
        ([[{"series": 'up{job="other"}', "values": "1x20"}]], {"10m": [down]}),
        (one_left, {"15m": []}),
        (both, {"5m": [], "9m": [], "12m": [down], "17m": []}),
        ([series("up", "1 0 1 0 0 1 0 1 0 0 1 0 1")], {"6m": [], "10m": [], "12m": []}),
    )


@pytest.mark.systems
def test_the_store_is_down_for_all_or_for_some(tmp_path: Path) -> None:
    critical = firing("CoalmineStoreDown", OF_JOB, severity="critical")
    warning = firing("CoalmineStoreDown", OF_JOB, severity="warning")
    promtool(
        tmp_path,
        "CoalmineStoreDown",
        ([series("coalmine_store_up", "1x5 0x10 1x9")], {"7m": [], "12m": [critical], "17m": []}),
        (
            [series("coalmine_store_up", "1x5 0x14 1x9", ["a"]), series("coalmine_store_up", "1x30", ["b"])],
            {"10m": [], "15m": [warning], "21m": []},
        ),
        ([series("coalmine_store_up", "1 _ _ 1 0 1 1 _ _ 1 1 1 1")], {"3m": [], "8m": [], "12m": []}),
    )


@pytest.mark.systems
def test_there_is_no_worker_where_nobody_works_and_work_is_left_undone(tmp_path: Path) -> None:
    alert = "CoalmineNoWorker"
    nobody, somebody = series("coalmine_worker_up", "0x60"), series("coalmine_worker_up", "1x60", ["a"])
    interval = of_check("coalmine_check_interval_seconds", "300x60")
    ran = of_check("coalmine_last_run_timestamp_seconds", "0x60")
    waiting = series("coalmine_runs_waiting_oldest_seconds", "0x9 0+60x50")
    fresh = of_check("coalmine_last_run_timestamp_seconds", "0+60x60")
    promtool(
        tmp_path,
        alert,
        ([nobody, interval, ran], {"10m": [], "14m": [firing(alert, OF_JOB)]}),
        ([nobody, waiting, interval, fresh], {"10m": [], "16m": [firing(alert, OF_JOB)]}),
        ([nobody, interval, fresh], {"30m": []}),  # somebody works where Prometheus does not look
        ([nobody], {"30m": []}),  # and there is nothing to do
        ([somebody, series("coalmine_worker_up", "0x60", ["b"]), interval, ran, waiting], {"30m": []}),
        ([series("coalmine_worker_up", "0x20 1x30"), waiting], {"18m": [firing(alert, OF_JOB)], "22m": []}),
    )


@pytest.mark.systems
def test_a_check_is_stale_after_two_intervals_whoever_restarts_however_often(tmp_path: Path) -> None:
    alert = "CoalmineCheckStale"
    interval = of_check("coalmine_check_interval_seconds", "300x60")
    ran = of_check("coalmine_last_run_timestamp_seconds", "0x40 2400x20")  # ended at 0, and again at minute 40
    restarting = of_check("coalmine_last_run_timestamp_seconds", "0 _ 0 0 _ 0 _ _ 0 0 _ 0 0 _ 0 0 _ _ 0 0 0")
    promtool(
        tmp_path,
        alert,
        ([interval, ran], {"15m": [], "17m": [firing(alert, OF_CHECK, "17m 0s")], "42m": []}),
        ([interval, restarting], {"20m": [firing(alert, OF_CHECK, "20m 0s")]}),
        (
            [interval, of_check("coalmine_last_run_timestamp_seconds", "0x4 300x4 600x4 900x4 1200x4 1500x4")],
            {"25m": []},
        ),
        ([of_check("coalmine_check_interval_seconds", "3600x60"), ran], {"39m": []}),  # as seldom as it should
        ([interval], {"14m": [], "21m": [firing(alert, OF_CHECK, "15m 0s")]}),  # never ran
        ([of_check("coalmine_check_interval_seconds", "300x10 stale")], {"21m": []}),  # deleted before it ever ran
        (
            [
                of_check("coalmine_check_interval_seconds", "300x20 stale"),
                of_check("coalmine_last_run_timestamp_seconds", "0x20 stale"),
            ],
            {"19m": [firing(alert, OF_CHECK, "19m 0s")], "25m": []},  # stale, then deleted
        ),
    )


@pytest.mark.systems
def test_a_monday_is_not_stale_for_its_weekend(tmp_path: Path) -> None:
    friday_until_monday = "259200x15 86400x40"  # a daily cron on weekdays, in force again at minute 16
    promtool(
        tmp_path,
        "CoalmineCheckStale",
        (
            [
                of_check("coalmine_check_interval_seconds", friday_until_monday),
                of_check("coalmine_last_run_timestamp_seconds", "-259200x18 1140x40"),  # Monday's run takes 3 minutes
            ],
            {"15m": [], "18m": [], "22m": [], "50m": []},
        ),
    )


@pytest.mark.systems
def test_runs_fail_where_two_in_a_row_have_no_verdict(tmp_path: Path) -> None:
    alert = "CoalmineRunsFailing"
    interval = of_check("coalmine_check_interval_seconds", "300x60")
    run = of_check("coalmine_last_run_timestamp_seconds", "0x4 300x4 600x4 900x4 1200x4 1500x4 1800x20")
    success = "coalmine_last_success_timestamp_seconds"
    promtool(
        tmp_path,
        alert,
        ([interval, run, of_check(success, "0x4 300x4 600x4 900x4 1200x4 1500x4 1800x20")], {"29m": []}),
        (
            [interval, run, of_check(success, "0x4 300x19 1500x4 1800x20")],
            {"19m": [], "22m": [firing(alert, OF_CHECK)], "26m": []},
        ),
        ([interval, run, of_check(success, "0x9 600x4 900x4 1200x4 1500x4 1800x20")], {"12m": [], "20m": []}),  # one
        ([interval, run], {"4m": [], "6m": [firing(alert, OF_CHECK)]}),  # never any
    )


@pytest.mark.systems
def test_the_scheduler_lags_where_runs_wait_or_every_tick_is_late(tmp_path: Path) -> None:
    alert, lag = "CoalmineSchedulerLagging", "coalmine_scheduler_lag_seconds"
    promtool(
        tmp_path,
        alert,
        (
            [series("coalmine_runs_waiting_oldest_seconds", "0x5 150x10 0x20")],
            {"10m": [], "12m": [firing(alert, OF_JOB, "2m 30s")], "18m": []},
        ),
        ([series("coalmine_runs_waiting_oldest_seconds", "0 90 0 100 0 119 0 80 0 0 0 0")], {"11m": []}),
        ([series(lag, "7200x40", ["a"]), series(lag, "0x40", ["b"])], {"30m": []}),  # one catch-up of a daily check
        ([series(lag, "0x5 80 90 100 90 80 90 100 90 80 90 100 90 80 90 100 90 80 90 100 90 90")], {"15m": []}),
        (
            [series(lag, "80 90 100 90 80 90 100 90 80 90 100 90 80 90 100 90 80 90 100 90 90 1 1 1")],
            {"18m": [firing(alert, OF_JOB, "1m 20s")], "22m": []},
        ),
    )


@pytest.mark.systems
def test_the_outbox_is_stuck_where_news_is_older_than_a_quarter_of_an_hour(tmp_path: Path) -> None:
    alert = "CoalmineOutboxStuck"
    promtool(
        tmp_path,
        alert,
        (
            [series("coalmine_outbox_oldest_seconds", "0+60x25 0x10")],
            {"20m": [], "21m": [firing(alert, OF_JOB, "21m 0s")], "27m": []},
        ),
        ([series("coalmine_outbox_oldest_seconds", "0+60x12 0 0+60x12 0")], {"26m": []}),
        ([series("coalmine_outbox_oldest_seconds", "0 86400 0 0 0 0 0 0 0")], {"6m": []}),  # an old one sent again
    )


@pytest.mark.systems
def test_deliveries_fail_where_a_hook_takes_nothing(tmp_path: Path) -> None:
    alert = "CoalmineDeliveriesFailing"
    told = firing(alert, OF_HOOK)
    promtool(
        tmp_path,
        alert,
        ([series("coalmine_deliveries_retrying", "0x5 2x5 0x10", hook="ops")], {"5m": [], "8m": [told], "12m": []}),
        ([series("coalmine_deliveries_dead", "3x5 4x120", hook="ops")], {"5m": [], "9m": [told], "80m": []}),
        ([series("coalmine_deliveries_dead", "4x30", hook="ops")], {"20m": []}),  # old ones, seen by a new replica
        ([series("coalmine_deliveries_dead", "4x10 0x30", hook="ops")], {"15m": []}),  # replayed
        ([series("coalmine_hook_disabled", "0x5 1x5 0x9", hook="ops")], {"5m": [], "8m": [told], "12m": []}),
        (
            [
                series("coalmine_deliveries_retrying", "1x9", hook="ops"),
                series("coalmine_deliveries_dead", "1x3 2x9", hook="ops"),
                series("coalmine_hook_disabled", "1x9", hook="ops"),
            ],
            {"8m": [told]},  # once, whatever speaks for it
        ),
    )


@pytest.mark.systems
def test_a_failed_reload_of_one_replica_is_told(tmp_path: Path) -> None:
    alert, name = "CoalmineConfigReloadFailed", "coalmine_config_last_reload_successful"
    promtool(
        tmp_path,
        alert,
        (
            [series(name, "1x5 0x5 1x9", ["a"]), series(name, "1x30", ["b"])],
            {"5m": [], "8m": [firing(alert, OF_JOB)], "12m": []},
        ),
        ([series(name, "1 _ 1 1 _ _ 1 1")], {"2m": [], "5m": [], "7m": []}),
    )


@pytest.mark.systems
def test_replicas_disagree_by_configuration_version_or_database(tmp_path: Path) -> None:
    alert = "CoalmineReplicasDisagree"
    told = firing(alert, OF_JOB)
    config, build = "coalmine_config_info", "coalmine_build_info"
    interval = "coalmine_check_interval_seconds"
    same = series(config, "1x60", hash="abc")
    alike = [same, series(build, "1x60", version="1"), series(interval, "300x60", **OF_CHECK)]
    promtool(
        tmp_path,
        alert,
        (alike, {"30m": []}),
        (
            [series(config, "1x40", ["a"], hash="abc"), series(config, "1x40", ["b"], hash="def")],
            {"14m": [], "16m": [told]},
        ),
        ([same, series(build, "1x40", ["a"], version="1"), series(build, "1x40", ["b"], version="2")], {"16m": [told]}),
        (
            [
                same,
                series(interval, "300x40", **OF_CHECK),
                series(interval, "300x40", ["b"], **{**OF_CHECK, "check": "other"}),
            ],
            {"16m": [told]},
        ),
        (
            [  # a rolling update, ten minutes long
                series(config, "1x5 stale", ["a"], hash="old"),
                series(config, "1x15 stale", ["b"], hash="old"),
                series(config, "_x5 1x40", ["c"], hash="new"),
                series(config, "_x15 1x40", ["d"], hash="new"),
            ],
            {"10m": [], "20m": [], "30m": []},
        ),
        (
            [*(series(config, "1x40", ["a"], hash="abc"), series(config, "1x20 stale", ["b"], hash="def"))],
            {"18m": [told], "25m": []},
        ),
    )


@pytest.mark.systems
def test_the_fallback_tells_of_verdicts_and_coverage(tmp_path: Path) -> None:
    def verdict(name: str, values: str) -> list[dict[str, str]]:
        return of_check("coalmine_verdict", values, verdict=name)

    degraded, unknown, low = "CoalmineCheckDegraded", "CoalmineCheckUnknown", "CoalmineCoverageLow"
    promtool(
        tmp_path,
        degraded,
        ([verdict("degraded", "0x5 1x20 0x20")], {"15m": [], "22m": [firing(degraded, OF_CHECK)], "34m": []}),
        ([verdict("degraded", "0x5 1x10 0x20"), verdict("unknown", "1x60")], {"20m": []}),
    )
    promtool(
        tmp_path,
        unknown,
        ([verdict("unknown", "0x5 1x35 0x20")], {"34m": [], "37m": [firing(unknown, OF_CHECK)], "50m": []}),
    )
    coverage = "coalmine_coverage_ratio"
    promtool(
        tmp_path,
        low,
        ([of_check(coverage, "1x5 0.85x20 1x20")], {"15m": [], "22m": [firing(low, OF_CHECK, "85%")], "34m": []}),
        ([of_check(coverage, "0.9x40")], {"30m": []}),
        ([of_check(coverage, "0.85x10 stale")], {"25m": []}),  # a dead retriever has no coverage
    )


@pytest.mark.systems
def test_the_fallback_tells_of_planted_documents_but_not_of_slow_ones(tmp_path: Path) -> None:
    name = "CoalminePlantsFailing"
    missed = of_check("coalmine_plant_problem", "0x5 1x20 0x20", problem="not_found")
    slow = of_check("coalmine_plant_problem", "1x40", problem="slow")
    told = firing(name, {**OF_CHECK, "problem": "not_found"})
    promtool(tmp_path, name, ([missed, slow], {"6m": [], "10m": [told], "40m": []}))


# --- recording -----------------------------------------------------------------------------------------------


@pytest.mark.systems
def test_recorded_series_are_those_of_one_installation_not_of_replicas(tmp_path: Path) -> None:
    given = [
        *of_check("coalmine_health_score_ratio", "0.8x20"),
        *of_check("coalmine_coverage_ratio", "0.9x20"),
        *of_check("coalmine_degraded_queries", "3x20"),
        *of_check("coalmine_canaries", "12x20", state="measured"),
        *of_check("coalmine_last_run_timestamp_seconds", "300x20"),
        *of_check("coalmine_check_interval_seconds", "300x20"),
        *of_check("coalmine_alerts", "2x20", state="firing", severity="critical"),
        *series("coalmine_probes_total", "0+90x20", outcome="ok"),
        *series("coalmine_probes_total", "0+30x20", outcome="timeout"),
        *series("coalmine_delivery_failures_total", "0+60x20", hook="ops", reason="refused"),
        *series("coalmine_probe_duration_seconds_bucket", "0+60x20", le="0.5"),
        *series("coalmine_probe_duration_seconds_bucket", "0+120x20", le="1"),
        *series("coalmine_probe_duration_seconds_bucket", "0+120x20", le="+Inf"),
        *series("coalmine_run_duration_seconds_bucket", "0+60x20", le="1"),
        *series("coalmine_run_duration_seconds_bucket", "0+60x20", le="+Inf"),
    ]
    expected = {
        "job_check:coalmine_health_score:ratio": (OF_CHECK, 0.8),
        "job_check:coalmine_coverage:ratio": (OF_CHECK, 0.9),
        "job_check:coalmine_degraded:ratio": (OF_CHECK, 0.25),
        "job_check:coalmine_run_age:seconds": (OF_CHECK, 900),
        "job_check:coalmine_run_age:intervals": (OF_CHECK, 3),
        "job_alert:coalmine_alerts:max": ({**OF_JOB, "check": "docs", "state": "firing", "severity": "critical"}, 2),
        "job:coalmine_probe_failures:ratio_rate15m": (OF_JOB, 0.25),
        "job:coalmine_probe_duration_seconds:p95_rate15m": (OF_JOB, 0.95),
        "job:coalmine_run_duration_seconds:p95_rate1h": (OF_JOB, 0.95),
        "job_hook:coalmine_delivery_failures:rate15m": (OF_HOOK, 2),
    }
    recorded = {rule["record"] for rule in rules(*RULE_FILES) if "record" in rule}
    assert recorded == set(expected)
    tests = [
        {"expr": name, "eval_time": "20m", "exp_samples": [{"labels": _labelled(name, labels), "value": value}]}
        for name, (labels, value) in expected.items()
    ]
    file = tmp_path / "test.yml"
    whole = {"interval": "1m", "input_series": given, "promql_expr_test": tests}
    file.write_text(
        yaml.safe_dump({"rule_files": [str(one) for one in RULE_FILES], "tests": [whole]}), encoding="utf-8"
    )
    run_promtool("test", "rules", file)


def _labelled(name: str, labels: Mapping[str, str]) -> str:
    return f"{name}{{{','.join(f'{label}={chr(34)}{value}{chr(34)}' for label, value in labels.items())}}}"
