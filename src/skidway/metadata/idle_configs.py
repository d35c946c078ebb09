"""The broker settings of Kafka 4.4 that have no effect here, and why.

Kafka's tools and clients name them, so they are known: described with Kafka's type and default, checked, and stored
where Kafka lets them be changed at run time. Nothing obeys them; their documentation says so. Settings that have an
effect are in `broker_configs` and `topic_configs`. Kafka's internal settings are not listed.
"""

from skidway.metadata.config_keys import Check, ConfigKey, ConfigType, at_least, between, each_of, one_of

_WHY = {
    "": "Skidway has nothing that it would change",
    "add.partitions": "the broker retries at a busy coordinator for 100 ms, after pauses that grow",
    "alter.config.policy": "there are no policy classes",
    "authorizer": "there is no authoriser yet",
    "auto.leader.rebalance": "leaders are balanced by the controller at all times",
    "background.threads": "there is one event loop and no thread pool to size",
    "client.quota": "there are no quotas",
    "connection.failed.authentication": "there is no authentication yet",
    "connections.max.reauth": "there is no authentication yet",
    "controlled.shutdown": "a broker always hands its partitions over before it stops",
    "controller.listener": "controllers speak on inter.broker.listener.name",
    "controller.quorum": "the quorum has settings of its own",
    "controller.quota": "there are no quotas",
    "cordoned.log.dirs": "there is one data directory; to keep a broker empty, set skidway.drained",
    "create.topic.policy": "there are no policy classes",
    "delegation.token": "there is no authentication yet",
    "early.start.listeners": "all listeners start at once",
    "follower.fetch.last.tiered": "there is no tiered storage",
    "group.consumer": "assignments are computed when the group changes",
    "group.coordinator": "groups are kept on the event loop",
    "group.share": "a share group is assigned as soon as it changes, by the one assignor there is",
    "group.streams": "there are no streams groups",
    "kafka.metrics": "there are no metrics reporters",
    "leader.imbalance": "leaders are balanced by the controller at all times",
    "listener.security": "there is no TLS and no SASL yet",
    "log.cleaner": "one log at a time is compacted, by a process of its own",
    "log.flush": "checkpoints have a setting of their own, checkpoint_ms",
    "log.remote": "there is no tiered storage",
    "max.request.partition": "limits.request_elements_max bounds requests",
    "metadata": "the metadata log has bounds of its own",
    "metric": "there are no metrics reporters",
    "num": "there is one event loop and no thread pool to size",
    "offsets": "the coordinator decides it by itself",
    "principal": "there is no authentication yet",
    "queued": "limits bounds what may wait",
    "quota": "there are no quotas",
    "remote": "there is no tiered storage",
    "replica": "replication has settings of its own",
    "replication.quota": "rates are measured by the second",
    "sasl": "there is no SASL yet",
    "security": "there is no TLS and no SASL yet",
    "share.coordinator": "the coordinator decides it by itself",
    "share.fetch": "there is no purgatory",
    "ssl": "there is no TLS yet",
    "telemetry": "clients cannot push metrics",
    "transaction.state": "the topic is made with Kafka's defaults; change it like any topic",
    "transaction.two.phase": "two-phase commit is in no release of Kafka either",
}

# Name, type, default, bounds (from..to, or choices), and `dynamic` where Kafka lets it be changed at run time.
_TABLE = """
add.partitions.to.txn.retry.backoff.max.ms int 100 0.. -
add.partitions.to.txn.retry.backoff.ms int 20 1.. -
alter.config.policy.class.name class null - -
alter.log.dirs.replication.quota.window.num int 11 1.. -
alter.log.dirs.replication.quota.window.size.seconds int 1 1.. -
authorizer.class.name string "" - -
auto.leader.rebalance.enable boolean true - -
background.threads int 10 1.. dynamic
client.quota.callback.class class null - -
config.providers list "" - dynamic
connection.failed.authentication.delay.ms int 100 0.. -
connections.max.reauth.ms long 0 - -
controlled.shutdown.enable boolean true - -
controller.listener.names list null - -
controller.quorum.append.linger.ms int 25 0.. -
controller.quorum.auto.join.enable boolean false - -
controller.quorum.bootstrap.servers list "" - -
controller.quorum.election.backoff.max.ms int 1000 0.. -
controller.quorum.election.timeout.ms int 1000 0.. -
controller.quorum.fetch.max.bytes int 1048576 1.. -
controller.quorum.fetch.snapshot.max.bytes int 1048576 1.. -
controller.quorum.fetch.timeout.ms int 2000 0.. -
controller.quorum.request.timeout.ms int 2000 0.. -
controller.quorum.retry.backoff.ms int 20 0.. -
controller.quota.window.num int 11 1.. -
controller.quota.window.size.seconds int 1 1.. -
controller.socket.timeout.ms int 30000 - -
cordoned.log.dirs list "" - -
create.topic.policy.class.name class null - -
delegation.token.expiry.check.interval.ms long 3600000 1.. -
delegation.token.expiry.time.ms long 86400000 1.. -
delegation.token.max.lifetime.ms long 604800000 1.. -
delegation.token.secret.key password null - -
delete.records.purgatory.purge.interval.requests int 1 - -
early.start.listeners list null - -
fetch.purgatory.purge.interval.requests int 1000 - -
follower.fetch.last.tiered.offset.enable boolean false - dynamic
group.consumer.assignment.interval.ms int 1000 0.. dynamic
group.consumer.assignors list uniform,range - -
group.consumer.max.assignment.interval.ms int 15000 0.. -
group.consumer.migration.policy string bidirectional - -
group.consumer.min.assignment.interval.ms int 0 0.. -
group.coordinator.append.linger.ms int -1 -1.. -
group.coordinator.background.threads int 2 1.. -
group.coordinator.cached.buffer.max.bytes int 1048588 524288.. dynamic
group.coordinator.rebalance.protocols list classic,consumer,streams consumer|classic|share|streams -
group.coordinator.threads int 4 1.. -
group.share.assignment.interval.ms int 1000 0.. dynamic
group.share.assignors list simple - -
group.share.max.assignment.interval.ms int 15000 0.. -
group.share.min.assignment.interval.ms int 0 0.. -
group.streams.assignment.interval.ms int 1000 0.. dynamic
group.streams.assignors list sticky - -
group.streams.heartbeat.interval.ms int 5000 1.. -
group.streams.initial.rebalance.delay.ms int 3000 0.. -
group.streams.max.assignment.interval.ms int 15000 0.. -
group.streams.max.heartbeat.interval.ms int 15000 1.. -
group.streams.max.session.timeout.ms int 60000 1.. -
group.streams.max.size int 2147483647 1.. -
group.streams.max.standby.replicas int 2 0.. -
group.streams.min.assignment.interval.ms int 0 0.. -
group.streams.min.heartbeat.interval.ms int 5000 1.. -
group.streams.min.session.timeout.ms int 45000 1.. -
group.streams.num.standby.replicas int 0 0.. -
group.streams.rack.aware.assignment.tags list "" - -
group.streams.session.timeout.ms int 45000 1.. -
group.streams.topology.description.plugin.class class null - -
initial.broker.registration.timeout.ms int 60000 - -
kafka.metrics.polling.interval.secs int 10 1.. -
kafka.metrics.reporters list "" - -
leader.imbalance.check.interval.seconds long 300 1.. -
listener.security.protocol.map string SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT - -
log.cleaner.enable boolean true - -
log.cleaner.io.buffer.load.factor double 0.9 - dynamic
log.cleaner.io.buffer.size int 524288 0.. dynamic
log.cleaner.io.max.bytes.per.second double 1.7976931348623157E308 - dynamic
log.cleaner.threads int 1 0.. dynamic
log.dir.failure.timeout.ms long 30000 1.. -
log.flush.offset.checkpoint.interval.ms int 60000 0.. -
log.flush.start.offset.checkpoint.interval.ms int 60000 0.. -
log.remote.copy.lag.bytes long -1 -1.. dynamic
log.remote.copy.lag.ms long 0 -1.. dynamic
max.connection.creation.rate int 2147483647 0.. dynamic
max.connections.per.ip.overrides string "" - dynamic
max.incremental.fetch.session.cache.slots int 1000 0.. -
max.request.partition.size.limit int 2000 1.. -
metadata.log.dir string null - -
metadata.log.max.record.bytes.between.snapshots long 20971520 1.. -
metadata.log.max.snapshot.interval.ms long 3600000 0.. -
metadata.log.segment.bytes int 1073741824 8388608.. -
metadata.log.segment.ms long 604800000 - -
metadata.max.idle.interval.ms int 500 0.. -
metadata.max.retention.bytes long 104857600 - -
metadata.max.retention.ms long 604800000 - -
metric.reporters list null - dynamic
metrics.num.samples int 2 1.. -
metrics.recording.level string INFO - -
metrics.sample.window.ms long 30000 1.. -
num.io.threads int 8 1.. dynamic
num.network.threads int 3 1.. dynamic
num.recovery.threads.per.data.dir int 2 1.. dynamic
num.replica.alter.log.dirs.threads int null - -
num.replica.fetchers int 1 1.. dynamic
offsets.commit.timeout.ms int 5000 1.. -
offsets.load.buffer.size int 5242880 1.. -
offsets.topic.compression.codec int 0 - -
offsets.topic.replication.factor short 3 1.. -
offsets.topic.segment.bytes int 104857600 1.. -
principal.builder.class class null - -
producer.purgatory.purge.interval.requests int 1000 - -
queued.max.request.bytes long -1 - -
queued.max.requests int 500 1.. -
quota.window.num int 11 1.. -
quota.window.size.seconds int 1 1.. -
remote.fetch.max.wait.ms int 500 1.. dynamic
remote.list.offsets.request.timeout.ms long 30000 1.. dynamic
remote.log.index.file.cache.total.size.bytes long 1073741824 1.. dynamic
remote.log.manager.copier.thread.pool.size int 10 1.. dynamic
remote.log.manager.copy.max.bytes.per.second long 9223372036854775807 1.. dynamic
remote.log.manager.copy.quota.window.num int 11 1.. -
remote.log.manager.copy.quota.window.size.seconds int 1 1.. -
remote.log.manager.expiration.thread.pool.size int 10 1.. dynamic
remote.log.manager.fetch.max.bytes.per.second long 9223372036854775807 1.. dynamic
remote.log.manager.fetch.quota.window.num int 11 1.. -
remote.log.manager.fetch.quota.window.size.seconds int 1 1.. -
remote.log.manager.follower.thread.pool.size int 2 1.. dynamic
remote.log.manager.task.interval.ms long 30000 1.. -
remote.log.manager.thread.pool.size int 2 1.. -
remote.log.metadata.custom.metadata.max.bytes int 128 0.. -
remote.log.metadata.manager.class.name string null - -
remote.log.metadata.manager.class.path string null - -
remote.log.metadata.manager.impl.prefix string rlmm.config. - -
remote.log.metadata.manager.listener.name string null - -
remote.log.reader.max.pending.tasks int 100 1.. -
remote.log.reader.threads int 10 1.. dynamic
remote.log.storage.manager.class.name string null - -
remote.log.storage.manager.class.path string null - -
remote.log.storage.manager.impl.prefix string rsm.config. - -
remote.log.storage.system.enable boolean false - -
replica.fetch.backoff.ms int 1000 0.. -
replica.fetch.max.bytes int 1048576 0.. -
replica.fetch.min.bytes int 1 - -
replica.fetch.response.max.bytes int 10485760 0.. -
replica.fetch.wait.max.ms int 500 - -
replica.high.watermark.checkpoint.interval.ms long 5000 - -
replica.selector.class string null - -
replica.socket.receive.buffer.bytes int 65536 - -
replica.socket.timeout.ms int 30000 - -
replication.quota.window.num int 11 1.. -
replication.quota.window.size.seconds int 1 1.. -
request.timeout.ms int 30000 - -
sasl.client.callback.handler.class class null - -
sasl.enabled.mechanisms list GSSAPI - -
sasl.jaas.config password null - -
sasl.kerberos.kinit.cmd string /usr/bin/kinit - -
sasl.kerberos.min.time.before.relogin long 60000 - -
sasl.kerberos.principal.to.local.rules list DEFAULT - -
sasl.kerberos.service.name string null - -
sasl.kerberos.ticket.renew.jitter double 0.05 - -
sasl.kerberos.ticket.renew.window.factor double 0.8 - -
sasl.login.callback.handler.class class null - -
sasl.login.class class null - -
sasl.login.connect.timeout.ms int null - -
sasl.login.read.timeout.ms int null - -
sasl.login.refresh.buffer.seconds short 300 - -
sasl.login.refresh.min.period.seconds short 60 - -
sasl.login.refresh.window.factor double 0.8 - -
sasl.login.refresh.window.jitter double 0.05 - -
sasl.login.retry.backoff.max.ms long 10000 - -
sasl.login.retry.backoff.ms long 100 - -
sasl.mechanism.controller.protocol string GSSAPI - -
sasl.mechanism.inter.broker.protocol string GSSAPI - -
sasl.oauthbearer.assertion.algorithm string RS256 - -
sasl.oauthbearer.assertion.claim.aud string null - -
sasl.oauthbearer.assertion.claim.exp.seconds int 300 0..86400 -
sasl.oauthbearer.assertion.claim.iss string null - -
sasl.oauthbearer.assertion.claim.jti.include boolean false - -
sasl.oauthbearer.assertion.claim.nbf.seconds int 60 0..3600 -
sasl.oauthbearer.assertion.claim.sub string null - -
sasl.oauthbearer.assertion.file string null - -
sasl.oauthbearer.assertion.private.key.file string null - -
sasl.oauthbearer.assertion.private.key.passphrase password null - -
sasl.oauthbearer.assertion.template.file string null - -
sasl.oauthbearer.client.credentials.client.id string null - -
sasl.oauthbearer.client.credentials.client.secret password null - -
sasl.oauthbearer.clock.skew.seconds int 30 - -
sasl.oauthbearer.expected.audience list "" - -
sasl.oauthbearer.expected.issuer string null - -
sasl.oauthbearer.jwks.endpoint.refresh.ms long 3600000 - -
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms long 10000 - -
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms long 100 - -
sasl.oauthbearer.jwks.endpoint.url string null - -
sasl.oauthbearer.jwt.retriever.class class null - -
sasl.oauthbearer.jwt.validator.class class null - -
sasl.oauthbearer.scope string null - -
sasl.oauthbearer.scope.claim.name string scope - -
sasl.oauthbearer.sub.claim.name string sub - -
sasl.oauthbearer.token.endpoint.url string null - -
sasl.server.callback.handler.class class null - -
sasl.server.max.receive.size int 524288 - -
security.inter.broker.protocol string PLAINTEXT PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL -
security.providers string null - -
share.coordinator.append.linger.ms int -1 -1.. -
share.coordinator.cached.buffer.max.bytes int 1048588 524288.. dynamic
share.coordinator.load.buffer.size int 5242880 1.. -
share.coordinator.state.topic.compression.codec int 0 - -
share.coordinator.state.topic.replication.factor short 3 1.. -
share.coordinator.threads int 1 1.. -
share.fetch.purgatory.purge.interval.requests int 1000 - -
socket.connection.setup.timeout.max.ms long 30000 - -
socket.connection.setup.timeout.ms long 10000 - -
socket.listen.backlog.size int 50 1.. -
socket.receive.buffer.bytes int 102400 - -
ssl.allow.dn.changes boolean false - -
ssl.allow.san.changes boolean false - -
ssl.cipher.suites list "" - -
ssl.client.auth string none required|requested|none -
ssl.enabled.protocols list TLSv1.2,TLSv1.3 - -
ssl.endpoint.identification.algorithm string https - -
ssl.engine.factory.class class null - -
ssl.key.password password null - -
ssl.keymanager.algorithm string SunX509 - -
ssl.keystore.certificate.chain password null - -
ssl.keystore.key password null - -
ssl.keystore.location string null - -
ssl.keystore.password password null - -
ssl.keystore.type string JKS - -
ssl.principal.mapping.rules string DEFAULT - -
ssl.protocol string TLSv1.3 - -
ssl.provider string null - -
ssl.secure.random.implementation string null - -
ssl.trustmanager.algorithm string PKIX - -
ssl.truststore.certificates password null - -
ssl.truststore.location string null - -
ssl.truststore.password password null - -
ssl.truststore.type string JKS - -
telemetry.max.bytes int 1048576 1.. -
transaction.state.log.load.buffer.size int 5242880 1.. -
transaction.state.log.min.isr int 2 1.. -
transaction.state.log.replication.factor short 3 1.. -
transaction.state.log.segment.bytes int 104857600 1.. -
transaction.two.phase.commit.enable boolean false - -
"""


def _check(kind: ConfigType, text: str) -> Check | None:
    if text == "-":
        return None
    least, dots, most = text.partition("..")
    if not dots:
        return (each_of if kind is ConfigType.LIST else one_of)(*text.split("|"))
    return between(int(least), int(most)) if most else at_least(int(least))


def _why(name: str) -> str:
    """By the longest beginning that is known."""
    return _WHY[max((begin for begin in _WHY if name.startswith(begin)), key=len)]


class IdleKey(ConfigKey):
    """A setting of Kafka that nothing here obeys."""

    is_dynamic: bool = False
    is_null: bool = False
    """Without a default."""
    why: str = ""


def _read(line: str) -> IdleKey:
    name, type_name, default, bounds, changed = line.split(" ")
    kind, why = ConfigType[type_name.upper()], _why(name)
    return IdleKey(
        name,
        kind,
        "" if default in ("null", '""') else default,
        f"A setting of Kafka. It has no effect here: {why}.",
        _check(kind, bounds),
        changed == "dynamic",
        default == "null",
        why,
    )


IDLE_KEYS: dict[str, IdleKey] = {key.name: key for key in map(_read, _TABLE.split("\n")[1:-1])}
