"""Settings: read once from the environment (`COALMINE_` prefix), frozen, each with its description.

A bad value stops the start and says which. Secrets have a `_FILE` twin that names a file holding the value. Other
variables read here: `COALMINE_API_KEY`, which commands send with `--server`; those of OpenTelemetry that say where
traces go; and the service links of Kubernetes, which are passed over.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from app.base.addresses import AddressPolicy, Proxy, hook_policy, parse_allow, parse_direct, retriever_policy
from app.base.errors import ConfigurationError

PREFIX = "COALMINE_"
SQLITE = "sqlite:///"
_LAST_PORT = 65_535
_MOST_DAYS = 36_500
_TOKEN_CHARACTERS = 16
_MOST_RUN_THREADS = 16
"""Each may hold a connection to the database, of which a process has forty."""
_LEAST_PING_SECONDS = 10
SCOPES = ("annotate", "ingest", "read", "write", "admin")
"""Those of `base.db.keys`, which would load the database for each command."""
_WIDEST_PROXIES = {4: 8, 6: 32}
"""Bits of a network by the version of IP."""
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3_600}
_DURATION = re.compile(r"([0-9]{1,6})([smh])")
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_API_KEY = f"{PREFIX}API_KEY"
_NOT_SETTINGS = {_API_KEY, f"{_API_KEY}_FILE"}
"""Variables under the prefix that are not settings of a service: the key commands send with `--server`."""
_SERVICE_LINK = re.compile(
    rf"{PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
"""Variables that Kubernetes sets for a Service called `coalmine` or `coalmine-...`, beside `..._PORT=tcp://...`."""


def _setting(description: str, parse: Callable[[str], Any], default: Any, *, secret: bool = False) -> Any:
    metadata = {"description": description, "parse": parse, "secret": secret}
    return field(default=default, metadata=metadata, repr=not secret)


def _boolean(value: str) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if value.lower() not in words:
        raise ValueError("must be true or false")
    return words[value.lower()]


def _port(value: str) -> int:
    if not value.isdecimal() or not 1 <= int(value) <= _LAST_PORT:
        raise ValueError("must be a port number from 1 to 65535")
    return int(value)


def _token(value: str) -> str:
    if len(value) < _TOKEN_CHARACTERS or not re.fullmatch(r"[!-~]+", value):
        raise ValueError(f"must be {_TOKEN_CHARACTERS} visible ASCII characters or more")  # never quoted
    return value


def _days(value: str) -> int:
    if not value.isdecimal() or not 1 <= int(value) <= _MOST_DAYS:
        raise ValueError(f"must be a whole number of days from 1 to {_MOST_DAYS}")
    return int(value)


def _run_threads(value: str) -> int:
    if not value.isdecimal() or not 1 <= int(value) <= _MOST_RUN_THREADS:
        raise ValueError(f"must be a whole number from 1 to {_MOST_RUN_THREADS}")
    return int(value)


def _seconds(value: str) -> int:
    match = _DURATION.fullmatch(value)
    seconds = int(match[1]) * _UNIT_SECONDS[match[2]] if match else 0
    if not _LEAST_PING_SECONDS <= seconds <= _UNIT_SECONDS["h"] * 24:
        raise ValueError("must be a duration from 10s to 24h, such as 30s, 1m or 2h")
    return seconds


def _secret_url(value: str) -> str:
    try:
        _web_url(value)
    except ValueError:
        raise ValueError("must be an address that begins with http:// or https://") from None  # never quoted
    return value


def _log_format(value: str) -> str:
    if value not in {"json", "text"}:
        raise ValueError("must be json or text")
    return value


def _allow(value: str) -> str:
    parse_allow(value)
    return value


def _proxy(value: str) -> str:
    if not re.fullmatch(r"https?://([^\s/?#@]+@)?[A-Za-z0-9._\[\]:-]+/?", value):
        raise ValueError("must be an address such as http://proxy.example.com:3128")  # never quoted
    return _secret_url(value)


def _no_proxy(value: str) -> str:
    parse_direct(value)
    return value


def _networks(value: str) -> tuple[IPv4Network | IPv6Network, ...]:
    try:
        networks = tuple(ip_network(item.strip()) for item in value.split(","))
    except ValueError as error:
        raise ValueError(f"must be comma-separated networks such as 10.0.0.7/32: {error}") from None
    if any(network.prefixlen < _WIDEST_PROXIES[network.version] for network in networks):
        raise ValueError("must be the networks of the proxies alone: whoever is in them may say who they are")
    return networks


def _remote_scopes(value: str) -> tuple[tuple[str, str], ...]:
    parts = [item.rpartition("=") for item in value.split(",")]
    pairs = [(group.strip(), scope.strip()) for group, _, scope in parts]
    if not all(group and scope in SCOPES for group, scope in pairs):
        raise ValueError(f"must be group=scope, comma-separated, such as *=read,ops=write; scopes: {', '.join(SCOPES)}")
    return tuple(pairs)


def _issuer(value: str) -> str:
    url = _web_url(value)
    parts = urlsplit(url)
    if parts.query or parts.fragment or parts.username is not None:
        raise ValueError("must be the issuer of an OpenID provider, such as https://login.example.com/realms/main")
    if parts.scheme != "https" and not _is_loopback(parts.hostname or ""):
        raise ValueError("must begin with https:// unless the provider is on this machine")
    return url


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _word(value: str) -> str:
    if not re.fullmatch(r"[ -~]{1,512}", value):  # as RFC 6749 has client ids and secrets
        raise ValueError("must be visible ASCII characters, 512 at most")  # never quoted: it may be a secret
    return value


def _host(value: str) -> str:
    try:
        ip_address(value)
    except ValueError:
        if not _HOST_NAME.fullmatch(value):
            raise ValueError("must be an IP address or the name of a host") from None
    return value


def _web_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not re.fullmatch(r"[!-~]+", value):
        raise ValueError("must be an address that begins with http:// or https:// and names a host")
    return value.rstrip("/")


def _public_url(value: str) -> str:
    url = _web_url(value)
    parts = urlsplit(url)
    if parts.query or parts.fragment or not re.fullmatch(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._~-]+)*", parts.path):
        raise ValueError("must be an address such as https://example.com or https://example.com/coalmine")
    return url


def _database_url(value: str) -> str:
    if not re.match(r"sqlite:///.|postgres(ql)?(\+[a-z0-9]+)?://", value):
        raise ValueError("must begin with sqlite:/// or postgresql://")  # never quoted: it may hold a password
    if value.startswith(SQLITE):
        path, marked, parameters = value.partition("?")
        if marked and not re.fullmatch(r"\w+=[^&/?]*(&\w+=[^&/?]*)*", parameters):
            raise ValueError("a `?` begins parameters, name=value; in the path of the file write %3F for it")
        if path.startswith(f"{SQLITE}file:"):
            raise ValueError("must be the path of a file, such as sqlite:////var/lib/coalmine/coalmine.db")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How this process runs. Field names in capitals, after `COALMINE_`, are the environment variables."""

    data_dir: Path = _setting("folder of the embedded database and the generated secret key", Path, Path("data"))
    database_url: str | None = _setting(
        "sqlite:///... or postgresql://...; default: coalmine.db in DATA_DIR", _database_url, None, secret=True
    )
    canaries: Path | None = _setting("file or folder of canary files, applied at start and on SIGHUP", Path, None)
    host: str = _setting("address to listen on; anything but loopback needs an API key", _host, "127.0.0.1")
    port: int = _setting("port to listen on", _port, 8000)
    log_format: str = _setting("json or text", _log_format, "text")
    secret_key: str | None = _setting(
        "encrypts stored secrets; on loopback generated into DATA_DIR/secret.key, elsewhere required",
        str,
        None,
        secret=True,
    )
    bootstrap_key_file: Path | None = _setting(
        "file with the first admin key; the key is created from it when there is none yet", Path, None
    )
    retriever_allow: str | None = _setting(
        "comma-separated CIDRs and hosts that may be probed; default: any but cloud metadata", _allow, None
    )
    hook_allow: str | None = _setting(
        "comma-separated CIDRs and hosts that hooks may reach besides public addresses", _allow, None
    )
    proxy: str | None = _setting(
        "HTTP proxy of retrievers, hooks and what is asked beside them; those of the environment are ignored",
        _proxy,
        None,
        secret=True,
    )
    no_proxy: str | None = _setting(
        "comma-separated CIDRs and hosts, with what is below them, that are reached without the proxy", _no_proxy, None
    )
    metrics_token: str | None = _setting(
        "bearer token for /metrics besides read keys, 16 characters or more", _token, None, secret=True
    )
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = _setting(
        "comma-separated networks of proxies whose Remote-User header says who is signed in", _networks, ()
    )
    oidc_issuer: str | None = _setting(
        "issuer of the OpenID provider that signs people in, such as https://login.example.com", _issuer, None
    )
    oidc_client_id: str | None = _setting("id of this service at that provider", _word, None)
    oidc_client_secret: str | None = _setting("its secret there; none for a public client", _word, None, secret=True)
    oidc_name_claim: str = _setting("claim with the name of the person", _word, "preferred_username")
    oidc_groups_claim: str = _setting("claim with the groups of the person", _word, "groups")
    remote_scopes: tuple[tuple[str, str], ...] = _setting(
        "scopes of whoever a trusted proxy or the OpenID provider signs in, by groups: group=scope; * is everybody",
        _remote_scopes,
        (("*", "read"),),
    )
    auto_migrate: bool = _setting("migrate a PostgreSQL database at start (SQLite always is)", _boolean, default=False)
    retention_days: int = _setting("days that runs and results are kept; alerts at least a year", _days, 90)
    run_threads: int = _setting("runs at a time in this process; over several replicas, shards", _run_threads, 4)
    public_url: str | None = _setting(
        "where people reach this service, with the path it is served below, if any", _public_url, None
    )
    dashboard_url: str | None = _setting("dashboard link in notifications; {check} is replaced", _web_url, None)
    ping_url: str | None = _setting(
        "address that is pinged while the worker works, such as a check of healthchecks.io",
        _secret_url,
        None,
        secret=True,
    )
    ping_interval: int = _setting("how often it is pinged", _seconds, 60)
    runbook_url: str | None = _setting(
        "runbook link in notifications; {check}, {rule} and {kind} are replaced", _web_url, None
    )

    @property
    def database(self) -> str:
        """The database URL in force."""
        try:
            return self.database_url or f"{SQLITE}{quote(str((self.data_dir / 'coalmine.db').resolve()))}"
        except UnicodeEncodeError:
            raise ConfigurationError(
                f"the name of {self.data_dir!r} is not UTF-8, as SQLite needs it: choose another --data-dir"
            ) from None

    @property
    def database_file(self) -> Path | None:
        """The file of SQLite; None where the database is no file."""
        name = unquote(self.database.removeprefix(SQLITE).partition("?")[0])
        return Path(name) if self.embedded and name != ":memory:" else None

    @property
    def embedded(self) -> bool:
        """Whether the store is a SQLite file."""
        return self.database.startswith("sqlite")

    @property
    def retriever_addresses(self) -> AddressPolicy:
        """The addresses that retrievers may have, and what is asked beside them."""
        return retriever_policy(parse_allow(self.retriever_allow) if self.retriever_allow else (), self._http_proxy)

    @property
    def hook_addresses(self) -> AddressPolicy:
        """The addresses that hooks may reach, and the ping."""
        return hook_policy(parse_allow(self.hook_allow) if self.hook_allow else (), self._http_proxy)

    @property
    def provider_addresses(self) -> AddressPolicy:
        """The addresses that an OpenID provider may have."""
        return AddressPolicy(name="sign-in", deny_private=False, proxy=self._http_proxy)

    @property
    def _http_proxy(self) -> Proxy | None:
        return None if self.proxy is None else Proxy(url=self.proxy, direct=parse_direct(self.no_proxy or ""))

    @property
    def url(self) -> str:
        """Where links in notifications point."""
        return self.public_url or f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def load_settings(environment: Mapping[str, str], **overrides: Any) -> Settings:
    """Return the settings of `environment`; `overrides` (command-line flags) win where they are not None.

    The service links of Kubernetes, such as `COALMINE_PORT=tcp://10.0.0.7:8000`, are passed over.
    Raises ConfigurationError naming every bad variable and every unknown one under the prefix.
    """
    values: dict[str, Any] = {}
    problems: list[str] = []
    names = set(_NOT_SETTINGS)
    environment = {name: value for name, value in environment.items() if not _is_service_link(name, value)}
    for setting in fields(Settings):
        name = PREFIX + setting.name.upper()
        names |= {name, f"{name}_FILE"} if setting.metadata["secret"] else {name}
        try:
            raw = _read_variable(environment, name, secret=setting.metadata["secret"])
            if raw is not None and overrides.get(setting.name) is None:
                values[setting.name] = setting.metadata["parse"](raw)
        except ValueError as error:
            problems.append(f"{name}: {error}")
    problems += [f"{name}: no such setting" for name in environment if name.startswith(PREFIX) and name not in names]
    if problems:
        raise ConfigurationError("\n".join(problems))
    values.update((name, value) for name, value in overrides.items() if value is not None)
    if values.get("trusted_proxies") and not values.get("public_url"):
        raise ConfigurationError(
            f"{PREFIX}TRUSTED_PROXIES: set {PREFIX}PUBLIC_URL too, as changes have to come from its pages"
        )
    _check_provider(values)
    return Settings(**values)


def _check_provider(values: Mapping[str, Any]) -> None:
    """Raise ConfigurationError for an OpenID provider without the settings that it needs."""
    if values.get("oidc_issuer") is None:
        return
    for name, why in (
        ("oidc_client_id", "the provider knows this service by it"),
        ("public_url", "it leads back there"),
    ):
        if values.get(name) is None:
            raise ConfigurationError(f"{PREFIX}OIDC_ISSUER: set {PREFIX}{name.upper()} too: {why}")


def service_links(environment: Mapping[str, str]) -> list[str]:
    """Return the variables under the prefix that Kubernetes set for its Services and that are passed over."""
    return sorted(name for name, value in environment.items() if _is_service_link(name, value))


def _is_service_link(name: str, value: str) -> bool:
    is_address = re.match(r"(tcp|udp|sctp)://", value) is not None
    return _SERVICE_LINK.fullmatch(name) is not None or (
        is_address and name.startswith(PREFIX) and name.endswith("PORT")
    )


def read_api_key(environment: Mapping[str, str]) -> str | None:
    """Return COALMINE_API_KEY or the content of COALMINE_API_KEY_FILE, which commands send with `--server`."""
    try:
        return _read_variable(environment, _API_KEY, secret=True)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def read_trace_endpoint(environment: Mapping[str, str]) -> str | None:
    """Return where traces are sent, by the variables of OpenTelemetry; None = nowhere.

    Its own SDK reads them all, and these again. Raises ConfigurationError for what Coalmine cannot do.
    """
    name, endpoint = _exporter_variable(environment, "ENDPOINT")
    exporter = environment.get("OTEL_TRACES_EXPORTER") or "otlp"
    if not endpoint or exporter == "none" or environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    if exporter != "otlp":
        raise ConfigurationError("OTEL_TRACES_EXPORTER: must be otlp or none")
    protocol, value = _exporter_variable(environment, "PROTOCOL")
    if value not in {"", "http/protobuf"}:
        raise ConfigurationError(f"{protocol}: must be http/protobuf, which is all Coalmine speaks")
    try:
        return _web_url(endpoint)
    except ValueError as error:
        raise ConfigurationError(f"{name}: {error}") from None


def _exporter_variable(environment: Mapping[str, str], word: str) -> tuple[str, str]:
    """Return an exporter variable and its value, "" = unset: the one for traces wins over the one for all."""
    names = (f"OTEL_EXPORTER_OTLP_TRACES_{word}", f"OTEL_EXPORTER_OTLP_{word}")
    name = next((name for name in names if environment.get(name)), names[-1])
    return name, environment.get(name, "")


def _read_variable(environment: Mapping[str, str], name: str, *, secret: bool) -> str | None:
    value = environment.get(name) or None
    file = environment.get(f"{name}_FILE") if secret else None
    if not file:
        return value
    if value is not None:
        raise ValueError(f"is set, and so is {name}_FILE; set one of the two")
    try:
        text = Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ValueError(f"{name}_FILE cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ValueError(f"the file of {name}_FILE is not UTF-8 text") from None
    if not text:
        raise ValueError(f"the file of {name}_FILE is empty")
    return text
