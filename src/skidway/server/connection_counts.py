"""How many connections there may be, in all and from one address: of a listener, or of all of them together."""


class ConnectionCounts:
    __slots__ = ("_named", "_per_ip", "connections", "connections_max", "connections_per_ip_max")

    def __init__(self, named: str, connections_max: int, connections_per_ip_max: int) -> None:
        """`named` comes before the names of the settings that hold the bounds."""
        self._named = named
        self.connections_max = connections_max
        self.connections_per_ip_max = connections_per_ip_max
        self.connections = 0
        self._per_ip: dict[str, int] = {}

    def refusal(self, ip: str) -> str | None:
        """Why nobody from this address may come now."""
        if self.connections >= self.connections_max:
            return f"{self._named}connections_max is {self.connections_max}"
        if self._per_ip.get(ip, 0) >= self.connections_per_ip_max:
            return f"{self._named}connections_per_ip_max is {self.connections_per_ip_max}"
        return None

    def add(self, ip: str) -> None:
        self.connections += 1
        self._per_ip[ip] = self._per_ip.get(ip, 0) + 1

    def remove(self, ip: str) -> None:
        self.connections -= 1
        left = self._per_ip[ip] - 1
        if left:
            self._per_ip[ip] = left
        else:
            del self._per_ip[ip]
