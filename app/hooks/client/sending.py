"""The real `Send`: dispatches to the adapter of each hook kind."""

from dataclasses import dataclass, replace
from datetime import datetime

from app.base.addresses import AddressPolicy, LookUp, Proxy, hook_remedy
from app.base.net.transfer import blocked_text, parse_host
from app.hooks.client.apprise import send_apprise
from app.hooks.client.chat_services import send_alertmanager, send_pagerduty, send_slack
from app.hooks.client.mail import send_mail
from app.hooks.client.name_lookup import addresses_of
from app.hooks.client.receiver_answers import HookError
from app.hooks.client.webhook import send_webhook
from app.hooks.domain.hooks import Hook, HookKind, Message, Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Sends over the network, within an address policy."""

    policy: AddressPolicy
    user_agent: str = "coalmine"
    look_up: LookUp = addresses_of
    """Resolves the hosts of hooks that are reached through a proxy."""

    def __call__(self, hook: Hook, message: Message, now: datetime) -> Receipt:
        """Attempt once; see `Send`. The error of a blocked address names the setting that allows it."""
        policy = _with_own_proxy(self.policy, hook)
        refusal = _refusal_behind_proxy(policy, hook, self.look_up)
        receipt = (
            self._send(hook, message, now, policy)
            if refusal is None
            else Receipt(ok=False, error=HookError.BLOCKED, detail=blocked_text(refusal), untaken=True)
        )
        remedy = hook_remedy(receipt.detail or "") if receipt.error == HookError.BLOCKED else ""
        return replace(receipt, detail=f"{receipt.detail}. {remedy}") if remedy else receipt

    def _send(self, hook: Hook, message: Message, now: datetime, policy: AddressPolicy) -> Receipt:
        user_agent = self.user_agent
        match HookKind(hook.kind):
            case HookKind.WEBHOOK:
                return send_webhook(hook, message, now, policy=policy, user_agent=user_agent)
            case HookKind.SLACK:
                return send_slack(hook, message, now, policy=policy, user_agent=user_agent)
            case HookKind.PAGERDUTY:
                return send_pagerduty(hook, message, now, policy=policy, user_agent=user_agent)
            case HookKind.ALERTMANAGER:
                return send_alertmanager(hook, message, now, policy=policy, user_agent=user_agent)
            case HookKind.EMAIL:
                return send_mail(hook, message, now, policy=policy)
            case HookKind.APPRISE:
                return send_apprise(hook, message, now, policy=policy)


def _with_own_proxy(policy: AddressPolicy, hook: Hook) -> AddressPolicy:
    """Return the policy with the proxy of a hook, which it has to permit: who defines hooks chose it."""
    if hook.proxy is None:
        return policy
    return replace(policy, proxy=Proxy(url=hook.proxy, judged=True) if hook.proxy else None)


def _refusal_behind_proxy(policy: AddressPolicy, hook: Hook, look_up: LookUp) -> str | None:
    """Return why a host that a proxy would look up is refused by what it resolves to here; None = it is not.

    The proxy connects in our place, from within the network that hooks may not reach: so a name that is known here has
    to lead to permitted addresses alone. One that is known to the proxy alone is the proxy's to judge.
    """
    host = parse_host(hook.url)
    if hook.kind in _WITHOUT_PROXY or not host or policy.proxy_of(host) is None:
        return None
    reasons = (policy.check(address, host) for address in look_up((host,)).get(host, ()))
    return next((reason for reason in reasons if reason is not None), None)


_WITHOUT_PROXY = frozenset({HookKind.EMAIL, HookKind.APPRISE})
