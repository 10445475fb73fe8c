"""Which addresses a policy refuses, and why."""

import pytest

from app.base.addresses import AddressPolicy, hook_policy, literal, parse_allow, retriever_policy

HOOKS = hook_policy()
RETRIEVERS = retriever_policy()


@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8",
        "100.63.255.255",
        "100.128.0.1",
        "172.15.0.1",
        "172.32.0.1",
        "223.255.255.255",
        "2606:4700::1111",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "2002:808:808::1",
        "2001:0:808:808::f7f7:f7f7",
    ],
)
def test_public_addresses_are_open_to_all(address: str) -> None:
    assert HOOKS.check(address, "hook.example") is None
    assert RETRIEVERS.check(address, "retriever.example") is None


@pytest.mark.parametrize("policy", [HOOKS, RETRIEVERS])
@pytest.mark.parametrize("address", ["", "localhost", "127.1", "1.2.3.4.5", "/run/app.sock"])
def test_what_is_no_address_is_refused(policy: AddressPolicy, address: str) -> None:
    assert policy.check(address, "x") == "not an internet address"


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "::1", "fd12::1", "192.168.0.1"])
def test_retrievers_may_stand_in_private_networks(address: str) -> None:
    assert RETRIEVERS.check(address, "retriever.internal") is None


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "fd00:ec2::254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "168.63.129.16"]
)
def test_metadata_is_refused_to_all_unless_listed_by_itself(address: str) -> None:
    for text in ("", "0.0.0.0/0, ::/0", "169.254.0.0/16, fd00::/8", "metadata.example"):
        for policy in (retriever_policy(parse_allow(text)), hook_policy(parse_allow(text))):
            reason = policy.check(address, "metadata.example")
            assert reason is not None
            assert reason.startswith("cloud metadata address ")


def test_metadata_listed_by_itself_is_open() -> None:
    listed = parse_allow("169.254.169.254")
    assert retriever_policy(listed).check("169.254.169.254", "x") is None
    assert hook_policy(listed).check("::ffff:169.254.169.254", "x") is None


def test_allow_list_opens_private_addresses_to_hooks() -> None:
    policy = hook_policy(parse_allow("10.1.0.0/16, Alerts.Internal., fd12::/16"))
    assert policy.check("10.1.2.3", "x") is None
    assert policy.check("::ffff:10.1.2.3", "x") is None
    assert policy.check("fd12::1", "x") is None
    assert policy.check("192.168.0.1", "alerts.internal") is None
    assert policy.check("192.168.0.1", "ALERTS.internal.") is None
    assert policy.check("192.168.0.1", "evil.alerts.internal") == "private address 192.168.0.1"
    assert policy.check("10.2.0.1", "x") == "private address 10.2.0.1"
    assert policy.check("8.8.8.8", "x") is None


def test_an_allow_list_for_retrievers_closes_everything_else() -> None:
    policy = retriever_policy(parse_allow("10.1.0.0/16,search.example"))
    assert policy.check("10.1.0.1", "x") is None
    assert policy.check("8.8.8.8", "search.example") is None
    assert policy.check("8.8.8.8", "x") == "address 8.8.8.8 is not on the allow list"
    assert policy.check("127.0.0.1", "x") == "address 127.0.0.1 is not on the allow list"


def test_an_address_with_documentation_alone_is_refused_to_hooks() -> None:
    assert HOOKS.check("192.0.2.1", "hook.example") == "documentation address 192.0.2.1"


def test_reason_names_the_address_inside() -> None:
    assert HOOKS.check("::ffff:10.0.0.1", "x") == "private address 10.0.0.1 (inside ::ffff:a00:1)"


def test_empty_allow_text_lists_nothing() -> None:
    assert parse_allow(" , ") == ()


@pytest.mark.parametrize(
    "bad",
    ["10.0.0.300", "10.0.0.0/33", "http://x", "a b", "*.example.com", "-a.example", "a..b", "x" * 64, "é.example"],
)
def test_bad_allow_item_is_named(bad: str) -> None:
    with pytest.raises(ValueError, match="is neither an address, a network") as caught:
        parse_allow(f"10.0.0.0/8, {bad}")
    assert repr(bad) in str(caught.value)


@pytest.mark.parametrize(
    "host",
    ["", "example", "1.2.3.4.5", "256.1", "1.256.1", "4294967296", "127.0.0.1.example", "0x", "09", "1..2", "x.1"],
)
def test_name_is_no_address(host: str) -> None:
    assert literal(host) is None


def test_unresolved_host_is_judged_by_its_address_or_by_its_name() -> None:
    listed = retriever_policy(parse_allow("10.1.0.0/16, search.example"))
    assert listed.check_unresolved("10.1.1") is None
    assert listed.check_unresolved("Search.Example.") is None
    assert listed.check_unresolved("evil.example") == "the host is not on the allow list"
    assert listed.check_unresolved("127.1") == "address 127.0.0.1 is not on the allow list"
    assert HOOKS.check_unresolved("127.1") == "loopback address 127.0.0.1"
    assert HOOKS.check_unresolved("anything.example") is None
    assert RETRIEVERS.check_unresolved("0xa9fea9fe") == "cloud metadata address 169.254.169.254"
