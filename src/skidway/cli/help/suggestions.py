"""Topics, groups and transactional ids that do not exist: every command's error says which name was probably meant.

The cluster is asked for its names only after it has said that one is not there. Where it does not answer quickly, the
error stays as it was.
"""

from typing import TYPE_CHECKING

from skidway.cli.help.misspelt import question

if TYPE_CHECKING:
    from skidway.blocking_client.cluster import Cluster
    from skidway.blocking_client.errors import BrokerError

ANSWER_MS = 2_000


def with_suggestion(error: "BrokerError", bootstrap: str | None) -> str:
    """The error in one sentence. `bootstrap`: where to ask for names."""
    hint = _hint(error, bootstrap)
    return f"{error}; {hint}" if hint else str(error)


def topic_meant(cluster: "Cluster", name: str) -> str | None:
    """The question, if a topic has a name like that."""
    from skidway.blocking_client.admin import Admin

    return question(name, (topic.name for topic in Admin(cluster).topics() if not topic.internal))


def _hint(error: "BrokerError", bootstrap: str | None) -> str | None:
    from skidway.blocking_client.cluster import Cluster, NoSuchTopic
    from skidway.blocking_client.errors import ClientError
    from skidway.blocking_client.groups import Groups, NoSuchGroup
    from skidway.blocking_client.transaction_admin import NoSuchTransaction, TransactionAdmin

    if bootstrap is None or not isinstance(error, NoSuchTopic | NoSuchGroup | NoSuchTransaction):
        return None
    try:
        with Cluster(bootstrap, client_id="skidway-cli", timeout_ms=ANSWER_MS) as cluster:
            if isinstance(error, NoSuchTopic):
                return topic_meant(cluster, error.topic)
            if isinstance(error, NoSuchTransaction):
                known = TransactionAdmin(cluster).all()
                return question(error.transactional_id, (transaction.id for transaction in known))
            return question(error.group, (group.id for group in Groups(cluster).all()))
    except ClientError:
        return None
