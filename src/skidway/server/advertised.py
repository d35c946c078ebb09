"""Whether clients can connect to the address that the broker advertises.

A client connects to its bootstrap address first and then to the address the broker advertises. Where that one is the
machine's own name, and nothing resolves it, or only to 127.0.1.1 as Debian's /etc/hosts does, every client fails after
its first request. Looked up beside the loop, because a name server may take seconds: the start does not wait for it.
"""

import ipaddress
import logging
import socket
import threading

from skidway.broker.listeners import Address, ListenerSpec

log = logging.getLogger("skidway.server")


def warn_if_unreachable(listener: ListenerSpec, *, chosen: bool) -> None:
    """`chosen`: the operator set `advertise`; then an address of this machine alone is what was wanted."""
    if not listener.bind.is_wildcard and not chosen:
        return  # what it listens on is what it advertises
    threading.Thread(target=_warn, args=(listener.advertised, chosen), daemon=True, name="advertised-address").start()


def _warn(advertised: Address, chosen: bool) -> None:
    if (problem := problem_of(advertised, chosen=chosen)) is not None:
        log.warning("%s", problem)


def problem_of(advertised: Address, *, chosen: bool) -> str | None:
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(advertised.host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        text = f"the advertised address {advertised} does not resolve on this machine"
        return f"{text}: clients that cannot resolve it either cannot connect; set --advertise HOST:PORT"
    if chosen or not all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in found):
        return None
    text = f"the advertised address {advertised} is {', '.join(sorted(found))}, which only this machine reaches"
    return f"{text}: for clients on other machines set --advertise HOST:PORT"
