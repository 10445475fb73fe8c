"""The manifests of deploy/kubernetes: Kubernetes takes them, and all they name is there in the product."""

import re
import socket
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import promql_parser
import pytest
import yaml
from fastapi.routing import iter_route_contexts

from app import __version__, serving
from app.base.jobs.values import JobsWaiting
from app.config import Settings, load_settings, service_links
from app.main import create_app, create_worker_app, open_service
from app.operation import health
from app.reports.metrics import state_families
from app.reports.service.metrics_snapshot import State
from tests.operation.test_readme import listed_commands
from tests.support.kubernetes_manifests import FOLDER, Shape, container_of, documents, matching, of_kind, pods
from tests.support.migrated_files import prepare_database
from tests.support.processes import free_ports

VERSIONS: Final = ("1.32", "1.34", kubernetes_validate.latest_version())
"""Of Kubernetes: the oldest that README.md names, one between, and the newest of the schemas."""
SECRETS: Final = {
    "database_url": "postgresql://coalmine:secret@db/coalmine",
    "secret_key": "s" * 32,
    "bootstrap_key": "cmk_admin_0123456789",
    "metrics_token": "0123456789abcdef",
}
SCALERS: Final = {"autoscale-by-age.yaml", "autoscale-by-cpu.yaml"}

PODS: Final = sorted(pods())
SERVE: Final = "coalmine-serve"
WORK: Final = "coalmine-work"


# --- as Kubernetes sees them ---------------------------------------------------------------------------------------


def _described() -> Iterator[Any]:
    for file, document in documents():
        if document["kind"] != "ScaledObject":  # KEDA's own: see below
            yield pytest.param(document, id=f"{file}-{document['kind']}-{document['metadata']['name']}")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("document", list(_described()))
def test_kubernetes_takes_each_manifest(document: Shape, version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


def test_the_schemas_notice_a_wrong_word() -> None:
    wrong = of_kind("Deployment")[WORK]
    wrong["spec"]["template"]["spec"]["containers"][0]["readinessProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


def test_every_file_is_applied_or_one_of_two_to_choose_from() -> None:
    text = (FOLDER / "kustomization.yaml").read_text(encoding="utf-8")
    kustomization = yaml.safe_load(text)
    assert set(kustomization["resources"]) | SCALERS == {file for file, _ in documents()}
    for scaler in SCALERS:
        assert f"# - {scaler}" in text
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^\| `(.+?)` \|", readme, re.MULTILINE))
    assert shown == {file for file, _ in documents()} | {"prometheus-scrape.yaml"}


def test_no_two_manifests_have_one_name_but_the_scalers_of_the_same_workers() -> None:
    names = [(one["kind"], one["metadata"]["name"]) for _, one in documents()]
    assert len(names) == len(set(names))


# --- hardened ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PODS)
def test_no_pod_can_change_its_image_gain_rights_or_talk_to_kubernetes(name: str) -> None:
    pod = pods()[name]["spec"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "fsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = container_of(pods()[name])
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["automountServiceAccountToken"] is False
    account = of_kind("ServiceAccount")[pod["serviceAccountName"]]
    assert account["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert {"requests", "limits"} == container["resources"].keys()


def test_pods_run_as_whom_the_image_runs() -> None:
    dockerfile = (FOLDER.parents[1] / "Dockerfile").read_text(encoding="utf-8")
    for pod in pods().values():
        context = pod["spec"]["securityContext"]
        assert f"USER {context['runAsUser']}:{context['runAsGroup']}" in dockerfile


@pytest.mark.parametrize("name", PODS)
def test_volumes_hold_what_is_mounted_and_nothing_else_can_be_written(name: str) -> None:
    pod = pods()[name]
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    mounts = {mount["name"]: mount for mount in container_of(pod)["volumeMounts"]}
    assert volumes.keys() == mounts.keys()
    writable = {mount["mountPath"] for mount in mounts.values() if not mount.get("readOnly")}
    assert writable == {"/data", "/tmp"}  # noqa: S108 - of the container
    assert all("emptyDir" in volumes[mount["name"]] for mount in mounts.values() if not mount.get("readOnly"))
    assert volumes["secrets"]["secret"] == {"secretName": "coalmine", "defaultMode": 0o440}


def test_nothing_secret_stands_in_a_manifest() -> None:
    assert not of_kind("Secret")
    for pod in pods().values():
        for variable in container_of(pod).get("env", []):
            assert not re.search("key|token|password|url", variable["name"], re.IGNORECASE)
    plain = of_kind("ConfigMap")["coalmine"]["data"]
    named = {name for name in plain if re.search("KEY|TOKEN|PASSWORD|DATABASE", name)}
    assert all(name.endswith("_FILE") for name in named)
    assert len(named) == len(SECRETS)


# --- what they name is there ---------------------------------------------------------------------------------------


def _settings(name: str, folder: Path) -> Settings:
    """Read the settings of a pod as its process does, with the secrets in a folder."""
    container = container_of(pods()[name])
    environment: dict[str, str] = {}
    for source in container["envFrom"]:
        if "configMapRef" in source:
            environment |= of_kind("ConfigMap")[source["configMapRef"]["name"]]["data"]
        else:
            assert source["secretRef"] == {"name": "coalmine-canaries", "optional": True}
    environment |= {variable["name"]: variable["value"] for variable in container.get("env", [])}
    (mounted,) = [one["mountPath"] for one in container["volumeMounts"] if one["name"] == "secrets"]
    for secret, value in SECRETS.items():
        (folder / secret).write_text(value, encoding="utf-8")
    moved = {key: value.replace(mounted, str(folder)) for key, value in environment.items()}
    return load_settings(moved)


@pytest.mark.parametrize("name", PODS)
def test_the_environment_of_a_pod_is_one_the_service_takes(name: str, tmp_path: Path) -> None:
    settings = _settings(name, tmp_path)
    assert settings.database_url == SECRETS["database_url"]
    assert settings.secret_key == SECRETS["secret_key"]
    assert settings.metrics_token == SECRETS["metrics_token"]
    assert settings.bootstrap_key_file == tmp_path / "bootstrap_key"
    mounts = {mount["mountPath"] for mount in container_of(pods()[name])["volumeMounts"]}
    assert str(settings.data_dir) in mounts
    assert settings.canaries is None if name != SERVE else str(settings.canaries) in mounts


@pytest.mark.parametrize("name", PODS)
def test_no_variable_of_kubernetes_itself_passes_for_a_setting(name: str) -> None:
    """The Service is called `coalmine`: its links set COALMINE_PORT and COALMINE_SERVICE_HOST."""
    assert "coalmine" in of_kind("Service")
    assert pods()[name]["spec"]["enableServiceLinks"] is False
    links = {
        "COALMINE_SERVICE_HOST": "10.0.0.7",
        "COALMINE_SERVICE_PORT": "8000",
        "COALMINE_SERVICE_PORT_HTTP": "8000",
        "COALMINE_PORT": "tcp://10.0.0.7:8000",
        "COALMINE_PORT_8000_TCP": "tcp://10.0.0.7:8000",
        "COALMINE_PORT_8000_TCP_ADDR": "10.0.0.7",
        "COALMINE_DEMO_SERVICE_HOST": "10.0.0.8",
        "COALMINE_DEMO_PORT": "tcp://10.0.0.8:8001",
    }
    assert load_settings(links) == load_settings({}), "where the links are on all the same"
    assert load_settings({"COALMINE_PORT": "8001"}).port == 8001
    assert service_links({**links, "COALMINE_HOST": "::"}) == sorted(links), "what the log names"
    assert [health.port_of(one) for one in (links, {"COALMINE_PORT": "8001"}, {})] == ["8000", "8001", "8000"]


def test_the_unspecified_address_of_ipv6_listens_for_both_families() -> None:
    own = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
    if not all(_can_bind(family, host) for family, host in own.items()):
        pytest.skip("this machine has one family of addresses")
    port = free_ports()
    with serving.bound("::", port) as sockets:
        for each in sockets:
            each.listen()
        for host in own.values():
            socket.create_connection((host, port), timeout=5).close()


def _can_bind(family: socket.AddressFamily, host: str) -> bool:
    try:
        with socket.socket(family) as made:
            made.bind((host, 0))
    except OSError:
        return False
    return True


def test_the_readme_makes_every_secret_the_pods_read() -> None:
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"--from-file=my-secrets/(\w+)", readme)) == set(SECRETS)
    files = {Path(value).name for key, value in of_kind("ConfigMap")["coalmine"]["data"].items() if "_FILE" in key}
    assert files == set(SECRETS)
    assert f"create secret generic {pods()[WORK]['spec']['volumes'][0]['secret']['secretName']} " in readme
    (canaries,) = [one for one in pods()[SERVE]["spec"]["volumes"] if "configMap" in one]
    assert f"create configmap {canaries['configMap']['name']} " in readme
    assert canaries["configMap"]["optional"] is True


def _given(name: str) -> dict[str, Any]:
    """Give the parameters of the command of a pod, as the command line reads them."""
    command, *arguments = container_of(pods()[name])["args"]
    context = listed_commands()[command].make_context(command, list(arguments))
    return dict(context.params)


def test_commands_and_their_options_are_those_of_the_command_line() -> None:
    served, worked = _given(SERVE), _given(WORK)
    assert served["no_worker"] is True
    assert {(one["host"], one["port"]) for one in (served, worked)} == {("0.0.0.0", 8000)}  # noqa: S104 - in a pod
    migrate = f"coalmine-migrate-{__version__}"
    assert container_of(pods()[migrate])["args"] == ["migrate"]
    _given(migrate)


@pytest.mark.parametrize("name", [SERVE, WORK])
def test_ports_are_those_the_command_listens_on(name: str) -> None:
    container = container_of(pods()[name])
    (port,) = container["ports"]
    assert port == {"name": "http", "containerPort": _given(name)["port"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == port["name"]
    policy = of_kind("NetworkPolicy")[name]
    assert [one["port"] for rule in policy["spec"]["ingress"] for one in rule["ports"]] == [port["name"]]
    service = of_kind("Service")["coalmine"]["spec"]
    assert {one["targetPort"] for one in service["ports"]} == {port["name"]}


def test_probes_ask_for_paths_that_their_process_has(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    prepare_database(settings)
    service = open_service(settings, environment={}, with_worker=False)
    try:
        apps = {SERVE: create_app(service), WORK: create_worker_app(service)}
        for name, app in apps.items():
            paths = {str(route.path) for route in iter_route_contexts(app.routes)}
            container = container_of(pods()[name])
            assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
            assert container["startupProbe"]["httpGet"]["path"] == "/livez"
            assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
            (scrape,) = yaml.safe_load((FOLDER / "prometheus-scrape.yaml").read_text())["scrape_configs"]
            assert {"/livez", "/readyz", scrape["metrics_path"]} <= paths
    finally:
        service.store.close()


def test_pods_get_the_time_that_a_graceful_end_takes() -> None:
    serve = pods()[SERVE]["spec"]
    waits = container_of(pods()[SERVE])["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert serve["terminationGracePeriodSeconds"] >= serving.GRACE_SECONDS + waits
    compose = yaml.safe_load((FOLDER.parents[1] / "docker-compose.yml").read_text(encoding="utf-8"))
    of_compose = compose["services"]["app"]["stop_grace_period"]
    assert f"{pods()[WORK]['spec']['terminationGracePeriodSeconds']}s" == of_compose


def test_images_and_the_job_are_of_this_release() -> None:
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text(encoding="utf-8"))
    (image,) = kustomization["images"]
    for pod in pods().values():
        assert container_of(pod)["image"] == f"{image['name']}:{__version__}"
    assert image["newTag"] == __version__
    assert list(of_kind("Job")) == [f"coalmine-migrate-{__version__}"]


# --- what belongs together -----------------------------------------------------------------------------------------


def test_selectors_find_the_pods_they_are_about_and_no_others() -> None:
    for name, deployment in of_kind("Deployment").items():
        assert matching(deployment["spec"]["selector"]["matchLabels"]) == {name}
        (spread,) = pods()[name]["spec"]["topologySpreadConstraints"]
        assert matching(spread["labelSelector"]["matchLabels"]) == {name}
    budgets = of_kind("PodDisruptionBudget")
    assert set(budgets) == set(of_kind("Deployment"))
    for name, budget in budgets.items():
        assert matching(budget["spec"]["selector"]["matchLabels"]) == {name}
        assert of_kind("Deployment")[name]["spec"]["replicas"] > budget["spec"]["maxUnavailable"]
    assert matching(of_kind("Service")["coalmine"]["spec"]["selector"]) == {SERVE}
    policies = [matching(one["spec"]["podSelector"]["matchLabels"]) for one in of_kind("NetworkPolicy").values()]
    assert sorted(name for names in policies for name in names) == PODS, "each pod has one, and only one"


def test_prometheus_keeps_the_pods_that_serve_and_work() -> None:
    (scrape,) = yaml.safe_load((FOLDER / "prometheus-scrape.yaml").read_text(encoding="utf-8"))["scrape_configs"]
    (rule,) = scrape["relabel_configs"]
    found = set()
    for name, pod in pods().items():
        labels = {f"__meta_kubernetes_pod_label_{re.sub(r'[^a-z]', '_', key)}": one for key, one in _labels(pod)}
        for port in container_of(pod).get("ports", []):
            seen = {**labels, "__meta_kubernetes_pod_container_port_name": port["name"]}
            if re.fullmatch(rule["regex"], ";".join(seen[label] for label in rule["source_labels"])):
                found.add(name)
    assert found == {SERVE, WORK}
    assert rule["action"] == "keep"
    assert scrape["job_name"] == "coalmine", "as the rules and the scaler call it"
    assert fnmatch(scrape["authorization"]["credentials_file"], "*/metrics_token")


def _labels(pod: Shape) -> list[tuple[str, str]]:
    return list(pod["metadata"]["labels"].items())


def test_workers_are_scaled_by_the_age_of_the_oldest_job_which_is_a_metric_of_ours() -> None:
    (scaled,) = of_kind("ScaledObject").values()
    assert scaled["apiVersion"] == "keda.sh/v1alpha1"
    spec = scaled["spec"]
    assert spec.keys() == {
        "scaleTargetRef",
        "minReplicaCount",
        "maxReplicaCount",
        "pollingInterval",
        "advanced",
        "triggers",
    }
    assert spec["advanced"].keys() == {"horizontalPodAutoscalerConfig"}
    (trigger,) = spec["triggers"]
    assert (trigger["type"], trigger["metricType"]) == ("prometheus", "Value")
    metadata = trigger["metadata"]
    assert metadata.keys() == {"serverAddress", "query", "threshold"}
    assert all(isinstance(value, str) for value in metadata.values()), "KEDA takes texts alone"
    assert float(metadata["threshold"]) > 0
    promql_parser.parse(metadata["query"])
    known = {family.name for family in state_families(_some_state())}
    assert set(re.findall(r"coalmine_\w+", metadata["query"])) == {"coalmine_jobs_waiting_oldest_seconds"}
    assert "coalmine_jobs_waiting_oldest_seconds" in known
    assert re.findall(r"(\w+)=", metadata["query"]) == ["job"]


def _some_state() -> State:
    return State(
        checks=(),
        alerts={},
        outbox_pending=0,
        outbox_oldest_seconds=0,
        runs_waiting=0,
        runs_waiting_oldest_seconds=0,
        hooks=(),
        jobs_waiting=JobsWaiting(number=0, oldest_seconds=0),
    )


def test_both_ways_of_scaling_are_about_the_workers_and_agree_in_their_bounds() -> None:
    (age,) = [document["spec"] for _, document in documents("autoscale-by-age.yaml")]
    (cpu,) = [document["spec"] for _, document in documents("autoscale-by-cpu.yaml")]
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": WORK}
    assert age["scaleTargetRef"] == cpu["scaleTargetRef"] == target
    assert WORK in of_kind("Deployment")
    least, most = age["minReplicaCount"], age["maxReplicaCount"]
    assert (least, most) == (cpu["minReplicas"], cpu["maxReplicas"])
    assert least <= of_kind("Deployment")[WORK]["spec"]["replicas"] <= most
    whole = {"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2", "metadata": {"name": "of-keda"}}
    of_keda = {**cpu, "behavior": age["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]}
    kubernetes_validate.validate({**whole, "spec": of_keda}, VERSIONS[0], strict=True)
