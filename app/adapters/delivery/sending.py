"""The real `Send`: dispatches to the adapter of each hook kind."""

from dataclasses import dataclass, replace
from datetime import datetime

from app.adapters.delivery.apprise import send_apprise
from app.adapters.delivery.chat_services import send_alertmanager, send_pagerduty, send_slack
from app.adapters.delivery.mail import send_mail
from app.adapters.delivery.receiver_answers import HookError
from app.adapters.delivery.webhook import send_webhook
from app.domain.addresses import AddressPolicy, hook_remedy
from app.domain.delivery.hooks import Hook, HookKind, Message, Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Sends over the network, within an address policy."""

    policy: AddressPolicy
    user_agent: str = "coalmine"

    def __call__(self, hook: Hook, message: Message, now: datetime) -> Receipt:
        """Attempt once; see `Send`. The error of a blocked address names the setting that allows it."""
        receipt = self._send(hook, message, now)
        remedy = hook_remedy(receipt.detail or "") if receipt.error == HookError.BLOCKED else ""
        return replace(receipt, detail=f"{receipt.detail}. {remedy}") if remedy else receipt

    def _send(self, hook: Hook, message: Message, now: datetime) -> Receipt:
        policy, user_agent = self.policy, self.user_agent
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
